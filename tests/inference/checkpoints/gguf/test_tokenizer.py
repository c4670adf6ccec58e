from __future__ import annotations

import json
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers

from inference.checkpoints.gguf.metadata import GgufHeader, read_gguf_header
from inference.checkpoints.gguf.tokenizer import marked_format, tokenizer_definition
from inference.text.fim import FORMATS
from inference.text.tokenization import TextTokenizer, read_tokenizer
from protocol.errors import BadModel
from tests.inference.byte_fallback import write_fallback_tokenizer
from tests.inference.conftest import VOCABULARIES
from tests.inference.tiny import MARKERS, write_tokenizer
from tests.inference.tiny_gguf import Fields, tokenizer_fields, write_file

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TEXTS = (
    Path(sysconfig.get_path("stdlib"), "argparse.py").read_text(encoding="utf-8")[:20_000],
    "x = 12345.678 + 0x1F\r\n\r\n\tif a['it''s']:  # ¿qué? 中文 한국어 १२३ ½\n\n\n    return ﷽ + '😀'\n  \n",
)


@pytest.fixture(scope="module")
def tokenizer_json(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    write_tokenizer(path)
    return path


def header_of(folder: Path, fields: Fields, changes: dict[str, Any] | None = None) -> GgufHeader:
    named = {"general.architecture": "llama"} | fields
    return read_gguf_header(write_file(folder / "model.gguf", named, {}, changes))


def tokenizer_of(header: GgufHeader) -> TextTokenizer:
    return TextTokenizer(tokenizer_definition(header), "model.gguf", fallback=marked_format(header))


def test_a_file_without_merges_is_refused(tokenizer_json: Path, tmp_path: Path) -> None:
    header = header_of(tmp_path, tokenizer_fields(tokenizer_json), {"tokenizer.ggml.merges": None})
    with pytest.raises(BadModel, match=r"has no tokenizer\.ggml\.merges"):
        tokenizer_definition(header)


def test_text_has_the_tokens_of_the_original(tokenizer_json: Path, tmp_path: Path) -> None:
    ours, original = tokenizer_of(header_of(tmp_path, tokenizer_fields(tokenizer_json))), read_tokenizer(tokenizer_json)
    for text in TEXTS:
        assert ours.encode(text) == original.encode(text)
    assert (ours.format, ours.markers) == (original.format, original.markers)
    assert ours.text_tokens() == original.text_tokens()


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("gpt-2", [pre_tokenizers.ByteLevel(add_prefix_space=False)]),
        *(
            (name, [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
            for name in ("smollm", "starcoder", "refact")
        ),
        (
            "qwen35",
            [
                pre_tokenizers.Split(
                    Regex(
                        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
                        r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
                    ),
                    behavior="isolated",
                ),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ],
        ),
        (
            "llama-bpe",
            [
                pre_tokenizers.Split(
                    Regex(
                        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
                        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
                    ),
                    behavior="isolated",
                ),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ],
        ),
    ],
)
def test_pre_tokenizers_are_those_of_the_models(tokenizer_json: Path, tmp_path: Path, name: str, steps: list[Any]) -> None:
    original = Tokenizer.from_file(str(tokenizer_json))
    original.pre_tokenizer = pre_tokenizers.Sequence(steps)
    header = header_of(tmp_path, tokenizer_fields(tokenizer_json, name))
    ours = Tokenizer.from_str(json.dumps(tokenizer_definition(header)))
    in_segments = tokenizer_of(header)
    for text in TEXTS:
        assert list(in_segments.encode(text)) == original.encode(text).ids
        assert ours.pre_tokenizer.pre_tokenize_str(text) == original.pre_tokenizer.pre_tokenize_str(text)
        assert ours.encode(text).ids == original.encode(text).ids


@pytest.mark.parametrize(
    ("family", "pre"), [("qwen2.5-coder", "qwen2"), ("starcoder2", "starcoder"), ("deepseek-coder", "deepseek-coder")]
)
def test_real_vocabularies_have_the_tokens_of_the_original(tmp_path: Path, family: str, pre: str) -> None:
    path = VOCABULARIES / family / "tokenizer.json"
    if not path.is_file():
        pytest.skip(f"the vocabulary {path} is not here")
    ours, original = tokenizer_of(header_of(tmp_path, tokenizer_fields(path, pre))), read_tokenizer(path)
    for text in TEXTS:
        assert ours.encode(text) == original.encode(text)
    assert (ours.format, ours.markers) == (original.format, original.markers)


def test_words_that_are_tokens_are_kept_whole_where_the_family_does(tokenizer_json: Path, tmp_path: Path) -> None:
    definitions = [
        tokenizer_definition(header_of(tmp_path, tokenizer_fields(tokenizer_json, name))) for name in ("qwen2", "llama3")
    ]
    assert [definition["model"]["ignore_merges"] for definition in definitions] == [False, True]


def test_padding_is_no_text(tokenizer_json: Path, tmp_path: Path) -> None:
    fields = tokenizer_fields(tokenizer_json)
    count = len(fields["tokenizer.ggml.tokens"])
    fields["tokenizer.ggml.tokens"] += ["[PAD1]", "last"]
    fields["tokenizer.ggml.token_type"] += [5, 1]
    tokenizer = tokenizer_of(header_of(tmp_path, fields))
    assert tokenizer.bytes_of(count) is None
    assert tokenizer.text_tokens()[count + 1] == b"last"


def test_markers_of_unknown_names_are_those_that_the_fields_name(tokenizer_json: Path, tmp_path: Path) -> None:
    fields = tokenizer_fields(tokenizer_json)
    renamed = {token: f"<reserved_{place}>" for place, token in enumerate(MARKERS)}
    tokens = [renamed.get(token, token) for token in fields["tokenizer.ggml.tokens"]]
    ids = {renamed[marker]: tokens.index(renamed[marker]) for marker in MARKERS}
    end, prefix, middle, suffix, _ = ids
    for keys in (("fim_pre", "fim_suf", "fim_mid"), ("prefix", "suffix", "middle")):
        named = {f"tokenizer.ggml.{key}_token_id": ids[token] for key, token in zip(keys, (prefix, suffix, middle), strict=True)}
        changes = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.eos_token_id": ids[end], **named}
        tokenizer = tokenizer_of(header_of(tmp_path, fields, changes))
        assert (tokenizer.format.name, tokenizer.format.end, tokenizer.format.begin) == ("gguf", (end,), "")
        markers = tokenizer.markers
        assert (markers.prefix, markers.suffix, markers.middle) == (ids[prefix], ids[suffix], ids[middle])
    begins = {"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.bos_token_id": ids[end]}
    assert tokenizer_of(header_of(tmp_path, fields, changes | begins)).format.begin == end
    with pytest.raises(BadModel, match="no fill-in-the-middle markers"):
        tokenizer_of(header_of(tmp_path, fields, {"tokenizer.ggml.tokens": tokens}))


def test_a_marker_of_an_ordinary_type_is_a_marker_if_the_fields_name_it(tokenizer_json: Path, tmp_path: Path) -> None:
    fields = tokenizer_fields(tokenizer_json)
    names = {key: f"<|fim_{key}|>" for key in ("prefix", "suffix", "middle")}
    ids = {key: fields["tokenizer.ggml.tokens"].index(name) for key, name in names.items()}
    fields["tokenizer.ggml.token_type"] = [1 if id_ in ids.values() else 3 for id_ in range(len(fields["tokenizer.ggml.tokens"]))]
    header = header_of(tmp_path, fields, {f"tokenizer.ggml.{key}_token_id": id_ for key, id_ in ids.items()})
    added = {token["content"] for token in tokenizer_definition(header)["added_tokens"]}
    assert set(names.values()) <= added


def test_sentencepiece_is_rebuilt_from_its_scores(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    markers = ("▁<PRE>", "▁<SUF>", "▁<MID>", "▁<EOT>", "<s>", "</s>")
    write_fallback_tokenizer(path, "llama", markers)
    definition = json.loads(path.read_text())
    ids = definition["model"]["vocab"] | {token["content"]: token["id"] for token in definition["added_tokens"]}
    tokens = sorted(ids, key=ids.__getitem__)
    fields = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(id_) for id_ in range(len(tokens))],
        "tokenizer.ggml.token_type": [
            2 if token == "<unk>" else 3 if token in markers else 6 if token.startswith("<0x") else 1 for token in tokens
        ],
    }
    ours, original = tokenizer_of(header_of(tmp_path, fields)), read_tokenizer(path)
    assert not ours.is_byte_level
    assert (ours.format.name, ours.markers) == ("codellama", original.markers)
    assert ours.text_tokens() == original.text_tokens()
    for text in TEXTS:
        stream = ours.text_stream()
        assert all(stream.push(token_id) for token_id in ours.encode(text))
        assert stream.text == text
    assert ours.encode(TEXTS[0]) == original.encode(TEXTS[0])


def test_gemma4_merges_over_lines_and_spells_other_bytes_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    write_fallback_tokenizer(path, "gemma", FORMATS["codegemma"].required_tokens)
    fields = tokenizer_fields(path) | {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.pre": None}
    ours, original = tokenizer_of(header_of(tmp_path, fields)), read_tokenizer(path)
    assert not ours.is_byte_level
    assert ours.markers == original.markers
    for text in TEXTS:
        assert ours.encode(text) == original.encode(text)
        stream = ours.text_stream()
        assert all(stream.push(token_id) for token_id in ours.encode(text))
        assert stream.text == text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": "bert"}, "of the kind 'bert'"),
        ({"model": None}, "of the kind None"),
        ({"pre": "nonsense"}, "the pre-tokenizer 'nonsense'"),
        ({"tokens": None}, "has no tokenizer"),
        ({"tokens": [1, 2]}, "tokens is not a list of strings"),
        ({"merges": "a b"}, "merges is not a list of strings"),
        ({"merges": ["a nothing-of-the-kind"]}, "the tokenizers library refuses"),
        ({"token_type": [1]}, "token_type does not have a number for each of"),
        ({"model": "llama"}, "scores does not have a number for each of"),
        ({"eos_token_id": 10**6}, "eos_token_id is 1000000, which is no token"),
        ({"fim_pre_token_id": "1"}, "fim_pre_token_id is '1', which is no token"),
    ],
)
def test_faults_are_named(tokenizer_json: Path, tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    changed = {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    with pytest.raises(BadModel, match=reason):
        tokenizer_of(header_of(tmp_path, tokenizer_fields(tokenizer_json), changed))


def test_a_file_without_a_pre_tokenizer_has_llama_cpps_default(tokenizer_json: Path, tmp_path: Path) -> None:
    header = header_of(tmp_path, tokenizer_fields(tokenizer_json), {"tokenizer.ggml.pre": None})
    tokenizer = Tokenizer.from_str(json.dumps(tokenizer_definition(header)))
    assert isinstance(tokenizer.decoder, decoders.ByteLevel)
    pieces = [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str("x12345==y")]
    assert pieces == ["x", "123", "45", "==", "y"]
