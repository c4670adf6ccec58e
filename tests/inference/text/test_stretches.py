from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.loading.engine import load_dry_engine
from inference.loading.options import EngineOptions
from inference.text.prompts import stretches, tokenize_prompt
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
    found = stretches(prompt, resident, tokenizer)
    assert "".join(stretch.text for stretch in found if stretch.part == "prefix") == "import os\n"
    assert "".join(stretch.text for stretch in found if stretch.part == "suffix") == "\nreturn 1\n"
    assert [stretch.resident for stretch in found] == sorted((stretch.resident for stretch in found), reverse=True)
    markers = sum(not tokenizer.is_text(token_id) for token_id in prompt.token_ids)
    assert sum(stretch.tokens for stretch in found) == len(prompt.token_ids) - markers
    left = sum(not tokenizer.is_text(token_id) for token_id in prompt.token_ids[resident:])
    computed = max(0, len(prompt.token_ids) - resident - left)
    assert sum(stretch.tokens for stretch in found if not stretch.resident) == computed


def test_a_partial_word_left_to_healing_is_shown_as_computed(tokenizer: TextTokenizer) -> None:
    prompt = tokenize_prompt(PROMPT, tokenizer, 512, 8)
    whole = stretches(prompt, len(prompt.token_ids), tokenizer)
    assert [stretch.part for stretch in whole] == ["snippets", "prefix", "suffix", "increment"]
    *_, last = stretches(replace(prompt, typed=b"na"), len(prompt.token_ids), tokenizer)
    assert (last.part, last.resident, last.text, last.tokens) == ("increment", False, "na", 0)
