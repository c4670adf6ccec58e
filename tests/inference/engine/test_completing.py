"""The steps of one request, with a test in the place of the model: which chunks it asks for, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from inference.engine.completing import SharedState
from inference.text.token_ids import packed
from protocol.errors import BadInput
from protocol.messages import Prompt, Sampling
from tests.inference.engine.driving import CHUNK, CONTEXT, REQUEST, drive, one_after_another, prompt_ids


def test_the_prompt_comes_in_chunks_and_the_last_wants_what_follows(shared: SharedState) -> None:
    said = shared.tokenizer.encode(" 1 + 2 + 3 + 4")[: REQUEST.max_tokens]
    run, chunks = drive(REQUEST, shared, one_after_another(said))
    prompt = prompt_ids(shared, REQUEST)
    prefill, decode = chunks[: -(-len(prompt) // CHUNK)], chunks[-(-len(prompt) // CHUNK) :]
    assert packed(token_id for chunk in prefill for token_id in chunk.token_ids) == prompt
    assert [chunk.start for chunk in prefill] == list(range(0, len(prompt), CHUNK))
    assert [chunk.wanted for chunk in prefill] == [0] * (len(prefill) - 1) + [1]
    assert [tuple(chunk.token_ids) for chunk in decode] == [(token_id,) for token_id in said[:-1]]
    assert [chunk.start for chunk in decode] == list(range(len(prompt), len(prompt) + len(decode)))
    completion = run.completion()
    assert (completion.finish_reason, completion.usage.forwards) == ("length", len(chunks))
    assert shared.tokenizer.encode(completion.text) == said


def test_a_prefetch_wants_nothing_and_the_next_key_finds_it_done(shared: SharedState) -> None:
    _, chunks = drive(replace(REQUEST, max_tokens=0), shared, one_after_another(()))
    assert {chunk.wanted for chunk in chunks} == {0}
    assert drive(replace(REQUEST, max_tokens=0), shared, one_after_another(()))[1] == []
    _, chunks = drive(replace(REQUEST, max_tokens=1), shared, one_after_another(shared.tokenizer.encode("a")))
    assert [(chunk.token_ids, chunk.wanted) for chunk in chunks] == [(prompt_ids(shared, REQUEST)[-1:], 1)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sampling": Sampling(1.0), "alternatives": 1}, "greedy"),
        ({"sampling": Sampling(1.0), "best_of": 2}, "greedy"),
        ({"prompt": Prompt("", "", token_ids=(5, 100_000))}, "100000"),
        ({"prompt": Prompt("", "", token_ids=(-1,))}, "-1"),
        ({"prompt": Prompt("", "", token_ids=(5,) * CONTEXT)}, f"{CONTEXT} tokens"),
    ],
)
def test_what_cannot_be_chosen_or_ended_is_refused(shared: SharedState, fields: dict[str, Any], message: str) -> None:
    run, chunks = drive(replace(REQUEST, **fields), shared, one_after_another(()))
    assert chunks == []
    with pytest.raises(BadInput, match=message):
        run.completion()


def test_a_prompt_of_token_ids_is_computed_as_it_is(shared: SharedState) -> None:
    token_ids = (7, 3, 3, 9) * 5
    request = replace(REQUEST, prompt=Prompt("", "", token_ids=token_ids), max_tokens=1)
    _, chunks = drive(request, shared, one_after_another(shared.tokenizer.encode("a")))
    assert tuple(token_id for chunk in chunks for token_id in chunk.token_ids) == token_ids


def test_a_request_that_cannot_be_used_takes_no_workspace(shared: SharedState) -> None:
    too_long = replace(REQUEST, prompt=Prompt("", "", "x = 1\n" * CONTEXT))
    run, chunks = drive(too_long, shared, one_after_another(()))
    assert chunks == []
    with pytest.raises(BadInput):
        run.completion()
    assert drive(replace(REQUEST, max_tokens=0), shared, one_after_another(()))[0].has_ended


def test_limit_beyond_the_context_counts_as_half_of_it(shared: SharedState) -> None:
    letters = shared.tokenizer.encode("a") * CONTEXT
    run, _ = drive(replace(REQUEST, max_tokens=100_000), shared, one_after_another(letters))
    completion = run.completion()
    assert (completion.usage.generated_tokens, completion.finish_reason) == (CONTEXT // 2, "length")
