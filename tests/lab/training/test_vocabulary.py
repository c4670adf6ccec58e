from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from midfill_lab.training.options import VocabularyError
from midfill_lab.training.vocabulary import MARKERS, Vocabulary, load_vocabulary, train_tokenizer
from protocol.errors import BadModel
from tests.lab.conftest import VOCABULARY_SIZE

TEXT_WITH_MARKERS = st.lists(st.one_of(st.text(max_size=20), st.sampled_from(MARKERS))).map("".join)


@given(TEXT_WITH_MARKERS)
def test_text_never_becomes_a_marker_and_decodes_to_itself(vocabulary: Vocabulary, text: str) -> None:
    ids = vocabulary.encode(text)
    assert all(token < vocabulary.size - len(MARKERS) for token in ids)
    assert vocabulary.decode(ids) == text


@given(st.lists(st.text(max_size=20)))
def test_fragments_decode_to_the_text_that_they_are_of(vocabulary: Vocabulary, fragments: list[str]) -> None:
    ids = [token for fragment in fragments for token in vocabulary.encode(fragment)]
    assert vocabulary.decode(ids) == "".join(fragments)


def test_the_markers_are_the_last_tokens_in_order(corpus_folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(corpus_folder / "tokenizer.json"))
    first = VOCABULARY_SIZE - len(MARKERS)
    assert [tokenizer.token_to_id(name) for name in MARKERS] == list(range(first, VOCABULARY_SIZE))


def test_text_is_split_as_qwen_does_it(corpus_folder: Path) -> None:
    raw = json.loads((corpus_folder / "tokenizer.json").read_text())
    split, byte_level = raw["pre_tokenizer"]["pretokenizers"]
    assert (split["type"], split["behavior"]) == ("Split", "Isolated")
    assert r"\s+(?!\S)" in split["pattern"]["Regex"]
    assert (byte_level["add_prefix_space"], byte_level["use_regex"]) == (False, False)


def test_a_tokenizer_without_markers_is_refused() -> None:
    tokenizer = Tokenizer(models.BPE())
    with pytest.raises(BadModel, match="fim_prefix"):
        Vocabulary(json.loads(tokenizer.to_str()), "here")


def test_a_vocabulary_too_small_or_too_large_for_its_texts_is_refused() -> None:
    with pytest.raises(VocabularyError, match="260"):
        train_tokenizer(["text"], 260)
    with pytest.raises(VocabularyError, match="8000"):
        train_tokenizer(["text"], 8000)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(VocabularyError, match=r"tokenizer\.json"):
        load_vocabulary(tmp_path / "tokenizer.json")
