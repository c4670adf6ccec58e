from __future__ import annotations

from pathlib import Path

import pytest

from inference.fim import (
    CODEGEMMA,
    CODELLAMA,
    CODESTRAL,
    DEEPSEEK_CODER,
    FORMATS,
    GRANITE_CODE,
    MELLUM,
    MIDFILL,
    QWEN_CODER,
    SEED_CODER,
    STARCODER,
    STARCODER2,
    FIMFormat,
    choose_format,
    recognise_format,
)
from inference.tokenization import TextTokenizer, read_tokenizer
from protocol.errors import BadInput, BadModel
from tests.inference.byte_fallback import write_fallback_tokenizer
from tests.inference.tiny import write_tokenizer

BY_VOCABULARY = {"<|im_start|>": QWEN_CODER, "<file_sep>": STARCODER2, "<｜fim▁begin｜>": DEEPSEEK_CODER}
FALLBACK_FORMS = {CODELLAMA.name: "llama", CODESTRAL.name: "metaspace", CODEGEMMA.name: "gemma"}


@pytest.mark.parametrize("fim", FORMATS, ids=lambda fim: fim.name)
def test_each_format_is_recognised_by_its_own_tokens(fim: FIMFormat) -> None:
    assert recognise_format(set(fim.required_tokens), f"models--x--{fim.named}-4b/tokenizer.json") is fim


@pytest.mark.parametrize("fim", FORMATS, ids=lambda fim: fim.name)
def test_each_format_agrees_with_a_tokenizer_of_its_kind(fim: FIMFormat, tmp_path: Path) -> None:
    path = tmp_path / f"{fim.named or 'model'}.json"
    if fim.name in FALLBACK_FORMS:
        write_fallback_tokenizer(path, FALLBACK_FORMS[fim.name], fim.required_tokens)
    else:
        write_tokenizer(path, markers=fim.required_tokens)
    tokenizer = read_tokenizer(path)
    assert tokenizer.format is fim
    check_markers(tokenizer)


def test_real_vocabularies_are_recognised_and_agree(real_tokenizer: TextTokenizer) -> None:
    assert real_tokenizer.format in BY_VOCABULARY.values()
    check_markers(real_tokenizer)


def check_markers(tokenizer: TextTokenizer) -> None:
    """Every marker is one token, which is no text: the engine ends a suggestion at any of them."""
    fim, markers = tokenizer.format, tokenizer.markers
    parts = [markers.prefix, markers.suffix, *([markers.middle] if fim.middle else [])]
    ids = {*parts, *markers.end}
    assert len(set(parts)) == len(parts)
    assert not set(parts) & markers.end
    assert len(markers.end) == len(fim.end)
    assert (markers.middle is None) == (not fim.middle)
    assert (markers.begin is None) == (not fim.begin)
    assert (markers.file_separator is None) == (not fim.file_separator)
    assert not any(tokenizer.is_text(id_) for id_ in ids)
    for marker in fim.required_tokens:
        assert all(map(tokenizer.is_text, tokenizer.encode(f"a = '{marker}'")))


def test_same_markers_are_told_apart() -> None:
    assert QWEN_CODER.prefix == MIDFILL.prefix == CODEGEMMA.prefix
    assert MIDFILL.trained_on_fragments
    assert [fim for fim in FORMATS if fim.trained_on_fragments] == [MIDFILL]


def test_families_with_the_same_tokens_are_told_apart_by_the_name_of_the_model() -> None:
    tokens = set(STARCODER.required_tokens)
    assert recognise_format(tokens, "models--JetBrains--Mellum-4b-base/tokenizer.json") is MELLUM
    assert recognise_format(tokens, "models--ibm-granite--granite-3b-code-base/tokenizer.json") is GRANITE_CODE
    assert recognise_format(tokens, "models--bigcode--starcoderbase-7b/tokenizer.json") is STARCODER


def test_a_format_is_chosen_by_name() -> None:
    tokens = set(STARCODER.required_tokens)
    assert choose_format("mellum", tokens, "here") is MELLUM
    assert choose_format("auto", tokens, "here") is STARCODER
    with pytest.raises(BadInput, match=r"no FIM format 'melum': it is auto, qwen-coder"):
        choose_format("melum", tokens, "here")
    with pytest.raises(BadModel, match=r"here is no tokenizer for the FIM format 'seed-coder': it lacks <\[fim-prefix"):
        choose_format(SEED_CODER.name, tokens, "here")


def test_tokenizer_without_markers_is_refused() -> None:
    with pytest.raises(BadModel, match=r"gpt2/tokenizer.json has no fill-in-the-middle markers"):
        recognise_format({"<|endoftext|>"}, "gpt2/tokenizer.json")
