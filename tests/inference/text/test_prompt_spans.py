from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.loading.engine import load_dry_engine
from inference.loading.options import EngineOptions
from inference.text.prompts import prompt_spans, tokenize_prompt
from inference.text.tokenization import TextTokenizer
from protocol.messages import Prompt, Snippet
from protocol.settings import TINY_MODEL


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return load_dry_engine(EngineOptions(TINY_MODEL, context_tokens=512, threads=1)).tokenizer


PROMPT = Prompt("import os\n", "\nreturn 1\n", "x = ÄÖ", (Snippet("a.py", "def f(): ...\n"),))


@given(st.integers(0, 200))
def test_the_stretches_spell_the_prompt_whatever_is_resident(tokenizer: TextTokenizer, resident: int) -> None:
    prompt = tokenize_prompt(PROMPT, tokenizer, 512, 8)
    found = prompt_spans(prompt, resident, tokenizer)
    assert "".join(span.text for span in found if span.part == "prefix") == "import os\n"
    assert "".join(span.text for span in found if span.part == "suffix") == "\nreturn 1\n"
    assert [span.resident for span in found] == sorted((span.resident for span in found), reverse=True)
    markers = sum(not tokenizer.is_text(token_id) for token_id in prompt.token_ids)
    assert sum(span.tokens for span in found) == len(prompt.token_ids) - markers
    left = sum(not tokenizer.is_text(token_id) for token_id in prompt.token_ids[resident:])
    computed = max(0, len(prompt.token_ids) - resident - left)
    assert sum(span.tokens for span in found if not span.resident) == computed


def test_a_partial_word_left_to_healing_is_shown_as_computed(tokenizer: TextTokenizer) -> None:
    prompt = tokenize_prompt(PROMPT, tokenizer, 512, 8)
    whole = prompt_spans(prompt, len(prompt.token_ids), tokenizer)
    assert [span.part for span in whole] == ["snippets", "prefix", "suffix", "increment"]
    *_, last = prompt_spans(replace(prompt, typed=b"na"), len(prompt.token_ids), tokenizer)
    assert (last.part, last.resident, last.text, last.tokens) == ("increment", False, "na", 0)
