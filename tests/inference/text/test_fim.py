from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.text.fim import FORMATS, FIMFormat, RenderedPrompt, choose_format, read_rendered, recognise_format, unknown_marker
from inference.text.prompts import tokenize_prompt
from inference.text.tokenization import TextTokenizer, read_tokenizer
from protocol.errors import BadInput, BadModel
from protocol.messages import Prompt, Snippet
from tests.inference.byte_fallback import write_fallback_tokenizer
from tests.inference.tiny import ROOT, write_tokenizer

FALLBACK_FORMS = {"codellama": "llama", "codestral": "metaspace", "codegemma": "gemma"}
# As the sources that stand beside the records show them, for the prefix P, the suffix S, and A in the file a.py.
PUBLISHED = {
    "qwen-coder": "<|file_sep|>a.py\nA\n<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>",
    "codegemma": "<bos><|file_separator|>a.py\nA\n<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>",
    "granite": "<|filename|>a.py\nA\n<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>",
    "smollm2": "<filename>a.py\nA\n<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>",
    "midfill": "A\n<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>",
    "starcoder2": "<file_sep>a.py\nA\n<fim_prefix>P<fim_suffix>S<fim_middle>",
    "mellum": "<filename>a.py\nA\n<fim_suffix>S<fim_prefix>P<fim_middle>",
    "granite-code": "<filename>a.py\nA\n<fim_prefix>P<fim_suffix>S<fim_middle>",
    "starcoder": "<filename>a.py\nA\n<fim_prefix>P<fim_suffix>S<fim_middle>",
    "deepseek-coder": "<｜begin▁of▁sentence｜>A\n<｜fim▁begin｜>P<｜fim▁hole｜>S<｜fim▁end｜>",
    "seed-coder": "<[begin▁of▁sentence]>A\n<[fim-suffix]>S<[fim-prefix]>P<[fim-middle]>",
    "codellama": "<s>A\n▁<PRE> P▁<SUF>S▁<MID>",
    "codestral": "<s>A\n[SUFFIX]S[PREFIX] P",
    "granite-3": "<filename>a.py\nA\n<fim_prefix>P<fim_suffix>S<fim_middle>",
    "llama-efim": "<|begin_of_text|>A\n<fim_prefix>P<fim_suffix>S<fim_middle>",
    "llama-fim": "<|begin_of_text|>A\n<fim_prefix>P<fim_suffix>S<fim_middle>",
    "deepseek-efim": "<｜begin▁of▁sentence｜>A\n<｜fim▁begin｜>P<｜fim▁end｜>S<｜fim▁hole｜>",
    "glm": "A\n<|code_prefix|>P<|code_suffix|>S<|code_middle|>",
    "lfm2": "<|startoftext|>A\n<|fim_pre|>P<|fim_suf|>S<|fim_mid|>",
    "falcon-h1": "A\n<|prefix|>P<|suffix|>S<|middle|>",
}
every_format = pytest.mark.parametrize("fim", FORMATS.values(), ids=FORMATS)


def tokenizer_of(fim: FIMFormat, folder: Path) -> TextTokenizer:
    """A small tokenizer of the family's kind, recognised by its own tokens."""
    path = folder / f"{fim.named or 'model'}.json"
    if fim.name in FALLBACK_FORMS:
        write_fallback_tokenizer(path, FALLBACK_FORMS[fim.name], fim.required_tokens)
    else:
        write_tokenizer(path, markers=fim.required_tokens)
    return read_tokenizer(path)


@every_format
def test_each_format_is_recognised_by_its_own_tokens(fim: FIMFormat) -> None:
    assert recognise_format(set(fim.required_tokens), f"models--x--{fim.named}-4b/tokenizer.json") is fim


@every_format
def test_each_format_agrees_with_a_tokenizer_of_its_kind(fim: FIMFormat, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(fim, tmp_path)
    assert tokenizer.format == fim
    check_markers(tokenizer)


@every_format
def test_each_format_lays_prompts_out_as_published(fim: FIMFormat, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(fim, tmp_path)
    prompt = Prompt("P", "S", context=(Snippet("a.py", "A\n"),))
    (definition,) = tmp_path.iterdir()
    names = {token["id"]: token["content"] for token in json.loads(definition.read_text())["added_tokens"]}
    laid_out = ""
    for token_id in tokenize_prompt(prompt, tokenizer, context_tokens=512, max_tokens=8).token_ids:
        if tokenizer.is_text(token_id):
            stream = tokenizer.text_stream()
            stream.push(token_id)
            laid_out += stream.text
        else:
            laid_out += names[token_id]
    assert laid_out == PUBLISHED[fim.name]


@pytest.mark.parametrize(
    ("real_tokenizer", "name"),
    [("qwen2.5-coder", "qwen-coder"), ("starcoder2", "starcoder2"), ("deepseek-coder", "deepseek-coder")],
    indirect=["real_tokenizer"],
)
def test_real_vocabularies_are_recognised_and_agree(real_tokenizer: TextTokenizer, name: str) -> None:
    assert real_tokenizer.format == FORMATS[name]
    check_markers(real_tokenizer)


def test_the_documentation_names_every_format() -> None:
    rows = [line for line in (ROOT / "docs" / "models.md").read_text().splitlines() if line.startswith("| `")][1:]
    assert {name for row in rows for name in re.findall("`([^`]+)`", row.split("|")[1])} == set(FORMATS)
    for fim in FORMATS.values():
        (row,) = [row for row in rows if f"`{fim.name}`" in row.split("|")[1]]
        assert ("suffix first" in row) == fim.suffix_first
        assert ("| marked |" in row) == bool(fim.file_separator)
        assert row.split("|")[-2].strip().startswith("yes") == fim.fragments_suffice


def check_markers(tokenizer: TextTokenizer) -> None:
    """Every marker is one token, which is no text: the engine ends a suggestion at any of them."""
    fim, markers = tokenizer.format, tokenizer.markers
    parts = [markers.prefix, markers.suffix, *([markers.middle] if fim.middle else [])]
    ids = {*parts, *markers.end}
    assert len(set(parts)) == len(parts)
    assert not set(parts) & markers.end
    assert len(markers.end) == len(fim.end) + len(fim.end_ids)
    assert (markers.middle is None) == (not fim.middle)
    assert (markers.begin is None) == (not fim.begin)
    assert (markers.file_separator is None) == (not fim.file_separator)
    assert not any(tokenizer.is_text(id_) for id_ in ids)
    for marker in fim.required_tokens:
        assert all(map(tokenizer.is_text, tokenizer.encode(f"a = '{marker}'")))


def test_same_markers_are_told_apart() -> None:
    assert FORMATS["qwen-coder"].prefix == FORMATS["midfill"].prefix == FORMATS["codegemma"].prefix
    suffice = {name for name, fim in FORMATS.items() if fim.fragments_suffice}
    assert suffice == {"midfill", "llama-efim", "deepseek-efim"}


def test_families_with_the_same_tokens_are_told_apart_by_the_name_of_the_model() -> None:
    tokens = set(FORMATS["starcoder"].required_tokens)
    assert recognise_format(tokens, "models--JetBrains--Mellum-4b-base/tokenizer.json") is FORMATS["mellum"]
    assert recognise_format(tokens, "models--ibm-granite--granite-3b-code-base/tokenizer.json") is FORMATS["granite-code"]
    assert recognise_format(tokens, "models--bigcode--starcoderbase-7b/tokenizer.json") is FORMATS["starcoder"]


def test_the_models_of_the_paper_are_told_from_others_by_the_word_enhance() -> None:
    deepseek, llama = (set(FORMATS[name].required_tokens) for name in ("deepseek-coder", "llama-fim"))
    efim = recognise_format(deepseek, "models--instinctguo--deepseek-coder-6.7b-enhance/tokenizer.json")
    assert efim is FORMATS["deepseek-efim"]
    assert efim.end_ids == (32027,)
    assert recognise_format(deepseek, "deepseek-coder-6.7b-enhanced/tokenizer.json") is FORMATS["deepseek-coder"]
    above = "/home/code-enhance/models/deepseek-coder/tokenizer.json"
    assert recognise_format(deepseek, above) is FORMATS["deepseek-coder"]
    snapshot = "hub/models--instinctguo--llama3.1-8b-enhance/snapshots/0123/tokenizer.json"
    assert recognise_format(llama, snapshot) is FORMATS["llama-efim"]
    assert recognise_format(llama, "llama3.1-8b-train/tokenizer.json") is FORMATS["llama-fim"]


def test_a_model_with_an_unknown_order_needs_its_format_named() -> None:
    tokens = set(FORMATS["mellum"].required_tokens)
    with pytest.raises(BadModel, match=r"not known for mellum2: name a --fim-format"):
        choose_format("auto", tokens, "models--JetBrains--Mellum2-12B/tokenizer.json")
    assert choose_format("mellum", tokens, "models--JetBrains--Mellum2-12B") is FORMATS["mellum"]


def test_a_byte_level_tokenizer_has_no_space_before_the_prefix(tmp_path: Path) -> None:
    """Mistral's tekken, other than SentencePiece's tokenizer of Codestral."""
    write_tokenizer(tmp_path / "tekken.json", markers=FORMATS["codestral"].required_tokens)
    tokenizer = read_tokenizer(tmp_path / "tekken.json")
    prompt = tokenize_prompt(Prompt("import os\n", "\n"), tokenizer, context_tokens=512, max_tokens=8)
    assert prompt.token_ids[-prompt.prefix_tokens :] == tokenizer.encode("import os\n")


def test_a_format_is_chosen_by_name() -> None:
    tokens = set(FORMATS["starcoder"].required_tokens)
    assert choose_format("mellum", tokens, "here") is FORMATS["mellum"]
    assert choose_format("auto", tokens, "here") is FORMATS["starcoder"]
    with pytest.raises(BadInput, match=r"unknown FIM format 'melum': choose auto, qwen-coder"):
        choose_format("melum", tokens, "here")
    with pytest.raises(BadModel, match=r"here: the tokenizer lacks <\[fim-prefix"):
        choose_format("seed-coder", tokens, "here")


def test_tokenizer_without_markers_is_refused() -> None:
    with pytest.raises(BadModel, match=r"gpt2/tokenizer.json has no fill-in-the-middle markers"):
        recognise_format({"<|endoftext|>"}, "gpt2/tokenizer.json")


def test_a_tokenizer_that_lacks_a_token_of_its_family_is_refused_with_the_token() -> None:
    tokens = set(FORMATS["granite-3"].required_tokens) - {"<|end_of_text|>"}
    with pytest.raises(BadModel, match=r"has <fim_prefix>, .* it lacks <\|end.*, which the nearest, .*, has"):
        recognise_format(tokens, "some/tokenizer.json")


CODE = st.text(alphabet="ab =(\n\t\u00e9", max_size=30)
FILE = Snippet("src/b.py", "y = 2\n")


def psm(fim: FIMFormat, before: str, after: str, increment: str = "") -> str:
    if fim.name == "codellama":
        return f"<PRE> {before} <SUF>{after} <MID>{increment}"
    return f"{fim.prefix}{before}{fim.suffix}{after}{fim.middle}{increment}"


def spm(fim: FIMFormat, before: str, after: str) -> str:
    if fim.name == "codellama":
        return f"<PRE> <SUF>{after} <MID> {before}"
    return f"{fim.suffix}{after}{fim.prefix}{before}{fim.middle}"


@pytest.mark.parametrize("fim", FORMATS.values(), ids=FORMATS)
@given(before=CODE, after=CODE)
def test_every_family_is_read_in_both_orders(fim: FIMFormat, before: str, after: str) -> None:
    expected = RenderedPrompt(before, after)
    assert read_rendered(spm(fim, before, after)) == expected
    if fim.middle:
        assert read_rendered(psm(fim, before, after)) == expected
        if before:
            assert read_rendered(psm(fim, before, after, "x = ")) == RenderedPrompt(before + "x = ", after)


@pytest.mark.parametrize("name", [name for name, fim in FORMATS.items() if fim.file_separator])
def test_files_in_front_are_read(name: str) -> None:
    fim = FORMATS[name]
    files = f"{fim.file_separator}{FILE.path}\n{FILE.text}{fim.file_separator}src/a.py\n"
    if fim.repository:
        files = f"{fim.repository}project\n{files}"
    expected = RenderedPrompt("x", "z", (FILE, Snippet("src/a.py", "")))
    assert read_rendered(fim.begin + files + psm(fim, "x", "z")) == expected
    assert read_rendered(files + spm(fim, "x", "z")) == expected


def test_a_file_without_a_path_is_read_whole() -> None:
    """Continue puts snippets in front of StarCoder 2's prompt without their paths."""
    prompt = "<file_sep>def f():\n    pass<file_sep><fim_prefix>a<fim_suffix>b<fim_middle>"
    assert read_rendered(prompt) == RenderedPrompt("a", "b", (Snippet("", "def f():\n    pass"),))


@pytest.mark.parametrize(
    ("prompt", "before", "after"),
    [
        ("<|code_prefix|>a<|code_suffix|>b<|code_middle|>", "a", "b"),
        ("<fim_prefix><fim_suffix>b<fim_middle>a", "a", "b"),
        ("<s>[SUFFIX]b[PREFIX]a", "a", "b"),
        ("<｜begin▁of▁sentence｜><｜fim▁begin｜>a<｜fim▁hole｜>b<｜fim▁end｜>", "a", "b"),
        ("<|fim_prefix|>a<|fim_suffix|>print('<|fim_middle|>')<|fim_middle|>", "a", "print('<|fim_middle|>')"),
        ("<|fim_prefix|><|fim_suffix|><|fim_middle|>", "", ""),
    ],
)
def test_what_clients_render(prompt: str, before: str, after: str) -> None:
    assert read_rendered(prompt) == RenderedPrompt(before, after)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "def f():\n    return 1",
        "marker = '<|fim_prefix|>'\nother = '<|fim_suffix|>'\nlast = '<|fim_middle|>'",
        "<|fim_prefix|>a<|fim_suffix|>b",
        "<|fim_prefix|>a",
        "[PREFIX]a[SUFFIX]b",
        "Complete this:\n<fim_prefix>a<fim_suffix>b<fim_middle>",
    ],
)
def test_other_texts_are_not_taken_for_prompts(text: str) -> None:
    assert read_rendered(text) is None


@pytest.mark.parametrize(
    ("text", "marker"),
    [
        ("<|fim_hole|>a<|x|>", "<|fim_hole|>"),
        ("<｜fim▁unknown｜>a", "<｜fim▁unknown｜>"),
        (" [MY_PREFIX]a", "[MY_PREFIX]"),
        ("<div>a</div>", None),
        ("x = [prefix]", None),
        ("def f():\n", None),
    ],
)
def test_a_prompt_of_a_model_that_is_not_known(text: str, marker: str | None) -> None:
    assert read_rendered(text) is None
    assert unknown_marker(text) == marker
