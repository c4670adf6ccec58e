from __future__ import annotations

import pytest

from inference.fim import FORMATS, MIDFILL, QWEN_CODER, FIMFormat, recognise_format
from inference.tokenization import TextTokenizer
from protocol.errors import BadModel

BY_VOCABULARY = {"<|im_start|>": "qwen-coder", "<fim_prefix>": "starcoder2", "<｜fim▁begin｜>": "deepseek-coder"}


@pytest.mark.parametrize("fim", FORMATS, ids=lambda fim: fim.name)
def test_each_format_is_recognised_by_its_own_tokens(fim: FIMFormat) -> None:
    assert recognise_format(set(fim.required_tokens), "here") is fim


def test_same_markers_are_told_apart() -> None:
    assert QWEN_CODER.prefix == MIDFILL.prefix
    assert MIDFILL.trained_on_fragments
    assert not QWEN_CODER.trained_on_fragments


def test_tokenizer_without_markers_is_refused() -> None:
    with pytest.raises(BadModel, match=r"gpt2/tokenizer.json has no fill-in-the-middle markers"):
        recognise_format({"<|endoftext|>"}, "gpt2/tokenizer.json")


def test_real_vocabularies_are_recognised_and_agree(real_tokenizer: TextTokenizer) -> None:
    fim, markers = real_tokenizer.format, real_tokenizer.markers
    assert fim.name in BY_VOCABULARY.values()
    ids = [markers.prefix, markers.suffix, markers.middle, *markers.end]
    assert len(set(ids)) == len(ids)
    assert len(markers.end) == len(fim.end)
    assert (markers.begin is None) == (not fim.begin)
    assert (markers.file_separator is None) == (not fim.file_separator)
    assert not any(real_tokenizer.is_text(id_) for id_ in ids)
