from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.pre_tokenizers import ByteLevel

from inference.text.fim import FORMATS
from inference.text.token_ids import TokenIds, packed
from inference.text.tokenization import (
    MAX_SEGMENT_CHARS,
    RULES,
    CutRule,
    LRUCache,
    TextTokenizer,
    choose_rule,
    read_tokenizer,
    split_segments,
)
from protocol.errors import BadModel
from tests.inference.byte_fallback import write_fallback_tokenizer
from tests.inference.tiny import ROOT, write_tokenizer

PIECES = [
    *["\n"] * 4, " ", "  ", "    ", "\t", "\r\n", "\r", "def", " return", "é", "中", "5", "12", "½", "一", "²", ";",
    "(", ")}", "'s", "'", '"""', "\u2028", "\x0b", "\x0c", "\xa0", "\u3000", "\u0301", "😀", "_", "\x1c", "\x85",
]  # fmt: skip


def whole(tokenizer: TextTokenizer, text: str) -> TokenIds:
    return packed(tokenizer._tokenizer.encode(text, add_special_tokens=False).ids)


def decode(tokenizer: TextTokenizer, token_ids: TokenIds) -> str:
    stream = tokenizer.text_stream()
    assert all(map(stream.push, token_ids))
    return stream.text


def test_blocks_change_no_token_of_real_vocabularies(real_tokenizer: TextTokenizer) -> None:
    rng = random.Random(7)
    texts = ["".join(rng.choices(PIECES, k=rng.randint(0, 16))) for _ in range(3000)]
    texts += [path.read_text() for path in sorted((ROOT / "protocol").glob("*.py"))]
    for text in texts:
        assert real_tokenizer.encode(text) == whole(real_tokenizer, text), repr(text)


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_blocks_change_no_token_of_ours(tiny_tokenizer: TextTokenizer, pieces: list[str]) -> None:
    text = "".join(pieces)
    assert tiny_tokenizer.encode(text) == whole(tiny_tokenizer, text)
    assert decode(tiny_tokenizer, tiny_tokenizer.encode(text)) == text


def test_marker_strings_in_source_are_text(real_tokenizer: TextTokenizer) -> None:
    check_marker_strings(real_tokenizer)


def test_marker_strings_in_source_are_text_for_ours(tiny_tokenizer: TextTokenizer) -> None:
    check_marker_strings(tiny_tokenizer)


def check_marker_strings(tokenizer: TextTokenizer) -> None:
    text = "".join(f'{marker}x = "{marker}"\n {marker}' for marker in tokenizer.format.required_tokens)
    token_ids = tokenizer.encode(text)
    assert all(tokenizer.is_text(token_id) for token_id in token_ids)
    assert decode(tokenizer, token_ids) == text


@pytest.fixture(scope="module", params=["llama", "gemma"])
def fallback_tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    path = tmp_path_factory.mktemp(request.param) / "tokenizer.json"
    formats = {"llama": FORMATS["codellama"], "gemma": FORMATS["codegemma"]}
    write_fallback_tokenizer(path, request.param, formats[request.param].required_tokens)
    return read_tokenizer(path)


@given(st.lists(st.sampled_from(PIECES), max_size=30))
def test_byte_fallback_goes_back_to_the_same_text(fallback_tokenizer: TextTokenizer, pieces: list[str]) -> None:
    text = "".join(pieces)
    assert decode(fallback_tokenizer, fallback_tokenizer.encode(text)) == text
    assert fallback_tokenizer.encode(text) == whole(fallback_tokenizer, text)


def test_byte_fallback_has_no_leading_space(fallback_tokenizer: TextTokenizer) -> None:
    assert decode(fallback_tokenizer, fallback_tokenizer.encode("def")) == "def"
    assert fallback_tokenizer.encode("def") != fallback_tokenizer.encode(" def")


def test_marker_strings_in_source_are_text_with_byte_fallback(fallback_tokenizer: TextTokenizer) -> None:
    markers = fallback_tokenizer.format.required_tokens
    text = " ".join(marker.replace("▁", "") for marker in markers)
    token_ids = fallback_tokenizer.encode(text)
    assert all(map(fallback_tokenizer.is_text, token_ids))
    assert decode(fallback_tokenizer, token_ids) == text


def test_keystroke_tokenizes_only_its_own_line(tiny_tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"    value_{number} = {number}\n" for number in range(200)]
    tiny_tokenizer.encode("".join(lines))
    encoded = []
    encode_block = tiny_tokenizer._encode_block
    monkeypatch.setattr(tiny_tokenizer, "_encode_block", lambda block: encoded.append(block) or encode_block(block))
    lines[100] = "    value_100 = 1000\n"
    tiny_tokenizer.encode("".join(lines))
    assert encoded == [lines[100]]
    tiny_tokenizer.encode("".join(lines))
    assert encoded == [lines[100]]


def test_long_line_is_the_sum_of_its_pieces(tiny_tokenizer: TextTokenizer) -> None:
    line = "ab" * MAX_SEGMENT_CHARS
    pieces = [line[start : start + MAX_SEGMENT_CHARS] for start in range(0, len(line), MAX_SEGMENT_CHARS)]
    assert tiny_tokenizer.encode(line) == packed(id_ for piece in pieces for id_ in whole(tiny_tokenizer, piece))


def test_lone_surrogate_counts_as_a_replacement_character(tiny_tokenizer: TextTokenizer) -> None:
    assert tiny_tokenizer.encode("a\ud800b") == tiny_tokenizer.encode("a\ufffdb")
    assert tiny_tokenizer.encode("\ud83d\ude00") == tiny_tokenizer.encode("😀")


def test_tokens_beyond_the_vocabulary_are_not_text(tiny_tokenizer: TextTokenizer) -> None:
    assert not tiny_tokenizer.is_text(10**6)


def test_vocabulary_that_hits_a_marker_with_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    write_tokenizer(path)
    definition = json.loads(path.read_text())
    marker = "<|fim_prefix|>"
    marker_id = next(token["id"] for token in definition["added_tokens"] if token["content"] == marker)
    definition["model"]["vocab"][marker] = marker_id
    definition["model"]["ignore_merges"] = True
    definition["pre_tokenizer"] = {**definition["pre_tokenizer"]["pretokenizers"][1], "use_regex": False}
    path.write_text(json.dumps(definition))
    with pytest.raises(BadModel, match=r"'<\|fim_prefix\|>' is tokenized as the marker"):
        read_tokenizer(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nonsense", "cannot be read as a tokenizer"),
        ("[]", "not a tokenizer of the tokenizers library"),
        ('{"model": {"type": "Unigram"}}', "needs a byte-level BPE tokenizer"),
        ('{"model": "x"}', "cannot be read as a tokenizer: AttributeError"),
        ("[" * 100_000, "cannot be read as a tokenizer: RecursionError"),
    ],
)
def test_files_that_are_no_tokenizers_are_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(BadModel, match=message):
        read_tokenizer(path)


def test_other_kinds_of_tokenizer_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    write_tokenizer(path)
    definition = json.loads(path.read_text())
    path.write_text(json.dumps({**definition, "decoder": {"type": "Metaspace"}}))
    with pytest.raises(BadModel, match="a byte-level BPE tokenizer, or BPE with byte fallback"):
        read_tokenizer(path)
    path.write_text(json.dumps({**definition, "model": {"type": "BPE", "vocab": 5}}))
    with pytest.raises(BadModel, match="cannot be read as a tokenizer"):
        read_tokenizer(path)
    path.write_text(json.dumps({**definition, "added_tokens": None}))
    with pytest.raises(BadModel, match="no fill-in-the-middle markers"):
        read_tokenizer(path)
    path.write_text(json.dumps({**definition, "pre_tokenizer": {"type": "nonsense"}}))
    with pytest.raises(BadModel, match="the tokenizers library refuses"):
        read_tokenizer(path)
    for id_ in (-1, 2**22, 2**31, 2**40, 1.5):
        path.write_text(json.dumps({**definition, "added_tokens": [{"id": id_, "content": "<|fim_prefix|>"}]}))
        with pytest.raises(BadModel, match=r"tokenizer.json (has a token whose id|cannot be read)"):
            read_tokenizer(path)


SOURCE = "class A:\n    def f(self):\n\n        return 1\n\n\nx = 2\n"


@pytest.mark.parametrize(
    ("rule", "blocks"),
    [
        ("before_lines", ["class A:\n", "    def f(self):\n\n", "        return 1\n\n\n", "x = 2\n"]),
        ("before_nonblank_lines", ["class A:\n", "    def f(self):\n\n", "        return 1\n\n\n", "x = 2\n"]),
        ("within_indentation", ["class A:\n   ", " def f(self):\n\n       ", " return 1\n\n", "\nx = 2\n"]),
    ],
)
def test_blocks_of_source(rule: str, blocks: list[str]) -> None:
    assert list(split_segments(SOURCE, named(rule))) == blocks


def test_digits_behind_indentation() -> None:
    assert list(split_segments("[\n  1\n]", named("within_indentation"))) == ["[\n  ", "1", "\n]"]
    assert list(split_segments("[\n  1\n]", named("within_all_indentation"))) == ["[\n ", " 1", "\n]"]


def test_white_space_lines() -> None:
    text = "a\n  \n  b"
    assert list(split_segments(text, named("before_lines"))) == ["a\n", "  \n", "  b"]
    assert list(split_segments(text, named("before_nonblank_lines"))) == ["a\n  \n", "  b"]
    assert list(split_segments(text, named("within_indentation"))) == ["a\n  \n ", " b"]


def named(name: str) -> CutRule:
    return next(rule for rule in RULES if rule.__name__ == name)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@given(text=st.text(alphabet="ab1 \t\n\r(é\x1c", max_size=60))
def test_blocks_are_the_text(rule: CutRule, text: str) -> None:
    blocks = list(split_segments(text, rule))
    assert "".join(blocks) == text
    assert all(blocks)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("run", ["\n", "\n ", " ", "\t\r\n"])
def test_a_long_run_of_white_space_is_read_once(rule: CutRule, run: str) -> None:
    """Trying it from each of its characters would take hours."""
    text = "x" + run * 2**18
    assert sum(map(len, split_segments(text, rule))) == len(text)


def test_long_lines_are_cut_in_pieces_of_bounded_size() -> None:
    minified = "x" * (3 * MAX_SEGMENT_CHARS + 5)
    blocks = list(split_segments(f"a\n{minified}\nb", named("before_lines")))
    assert max(map(len, blocks)) == MAX_SEGMENT_CHARS
    assert "".join(blocks) == f"a\n{minified}\nb"
    grown = list(split_segments(f"a\n{minified}yy\nb", named("before_lines")))
    assert grown[:4] == blocks[:4]


def test_gpt2_joins_the_last_space_with_a_number() -> None:
    gpt2 = ByteLevel(add_prefix_space=False)
    rule = choose_rule(lambda text: [piece for piece, _ in gpt2.pre_tokenize_str(text)])
    assert rule.__name__ == "within_all_indentation"


def test_pre_tokenizer_that_no_rule_fits_gets_the_default() -> None:
    assert choose_rule(lambda text: [text]).__name__ == "before_nonblank_lines"


def test_oldest_goes_when_there_are_too_many() -> None:
    cache: LRUCache[str, int] = LRUCache(max_entries=2, max_bytes=100)
    cache.put("a", 1, 10)
    cache.put("b", 2, 10)
    assert cache.get("a") == 1
    cache.put("c", 3, 10)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)
    assert (len(cache), cache.used_bytes) == (2, 20)


def test_oldest_go_until_bytes_fit() -> None:
    cache: LRUCache[str, int] = LRUCache(max_entries=10, max_bytes=30)
    for number, key in enumerate("abc"):
        cache.put(key, number, 10)
    cache.put("d", 3, 25)
    assert [cache.get(key) for key in "abcd"] == [None, None, None, 3]
    assert cache.used_bytes == 25


def test_what_is_replaced_removed_or_too_large_leaves_the_bytes_right() -> None:
    cache: LRUCache[str, int] = LRUCache(max_entries=10, max_bytes=30)
    cache.put("a", 1, 10)
    cache.put("a", 2, 20)
    cache.put("huge", 3, 31)
    assert (cache.get("huge"), cache.get("a"), cache.used_bytes, len(cache)) == (None, 2, 20, 1)
    cache.remove("a")
    cache.remove("unknown")
    assert (cache.get("a"), cache.used_bytes, len(cache)) == (None, 0, 0)


def test_what_is_typed_takes_no_more_memory_than_the_caches_count(tiny_tokenizer: TextTokenizer) -> None:
    for cache in (tiny_tokenizer._blocks, tiny_tokenizer._fragments):
        cache.remove_all(lambda _: True)
    source = (ROOT / "protocol" / "messages.py").read_text(encoding="utf-8")
    for end in range(600):
        tiny_tokenizer.encode(source[:end])
    for cache in (tiny_tokenizer._blocks, tiny_tokenizer._fragments):
        entries = [(text, cache.get(text)) for text in tuple(cache)]
        assert len(entries) > 10
        assert sum(sys.getsizeof(text) + sys.getsizeof(ids) for text, ids in entries) < cache.used_bytes
