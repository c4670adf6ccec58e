"""The steps of one request, with a test in the place of the model: which chunks it asks for, and what follows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from inference.backends.chunk import Chunk
from inference.backends.model import Choice
from inference.engine.active_request import ActiveRequest
from inference.engine.alternatives import Alternatives
from inference.engine.completing import Tools, complete
from inference.engine.slots import Slots
from inference.text.healing import Healer
from inference.text.prompts import tokenize_prompt
from inference.text.token_ids import TokenIds, packed
from inference.text.tokenization import TextTokenizer
from kv_store.dry_workspace import DryWorkspace
from protocol.errors import BadInput
from protocol.messages import CompletionRequest, Prompt, StopRule
from tests.kv_store.naive import NaiveStore

REQUEST = CompletionRequest("a.py", Prompt("import os\n" * 12, "\n", "x ="), 5, StopRule(indent=4))
CONTEXT, CHUNK = 512, 16


@pytest.fixture
def tools(tiny_tokenizer: TextTokenizer) -> Tools:
    slots = Slots(1, lambda: DryWorkspace(bytes_per_token=4), NaiveStore())
    return Tools(tiny_tokenizer, None, Alternatives(tiny_tokenizer, None), slots, None, CONTEXT)


def prompt_ids(tools: Tools, request: CompletionRequest) -> TokenIds:
    return tokenize_prompt(request.prompt, tools.tokenizer, CONTEXT, request.max_tokens).token_ids


def drive(
    request: CompletionRequest, tools: Tools, says: Callable[[Chunk], Sequence[int]]
) -> tuple[ActiveRequest, list[Chunk]]:
    """Answer every chunk with the tokens that `says` gives for it; the run that has ended, and the chunks."""
    run, chunks = ActiveRequest(request, lambda: False, complete(request, tools, lambda: False, lambda: CHUNK)), []
    while (chunk := run.chunk) is not None:
        chunks.append(chunk)
        run.resume(tuple(Choice(token_id, -0.5) for token_id in says(chunk)))
    return run, chunks


def one_after_another(token_ids: Sequence[int]) -> Callable[[Chunk], Sequence[int]]:
    left = iter(token_ids)
    return lambda chunk: [next(left) for _ in range(chunk.wanted)]


def test_the_prompt_comes_in_chunks_and_the_last_wants_what_follows(tools: Tools) -> None:
    said = tools.tokenizer.encode(" 1 + 2 + 3 + 4")[: REQUEST.max_tokens]
    run, chunks = drive(REQUEST, tools, one_after_another(said))
    prompt = prompt_ids(tools, REQUEST)
    prefill, decode = chunks[: -(-len(prompt) // CHUNK)], chunks[-(-len(prompt) // CHUNK) :]
    assert packed(token_id for chunk in prefill for token_id in chunk.token_ids) == prompt
    assert [chunk.start for chunk in prefill] == list(range(0, len(prompt), CHUNK))
    assert [chunk.wanted for chunk in prefill] == [0] * (len(prefill) - 1) + [1]
    assert [tuple(chunk.token_ids) for chunk in decode] == [(token_id,) for token_id in said[:-1]]
    assert [chunk.start for chunk in decode] == list(range(len(prompt), len(prompt) + len(decode)))
    completion = run.completion()
    assert (completion.finish_reason, completion.usage.forwards) == ("length", len(chunks))
    assert tools.tokenizer.encode(completion.text) == said


def test_ahead_work_wants_nothing_and_the_next_key_finds_it_done(tools: Tools) -> None:
    _, chunks = drive(replace(REQUEST, max_tokens=0), tools, one_after_another(()))
    assert {chunk.wanted for chunk in chunks} == {0}
    assert drive(replace(REQUEST, max_tokens=0), tools, one_after_another(()))[1] == []
    _, chunks = drive(replace(REQUEST, max_tokens=1), tools, one_after_another(tools.tokenizer.encode("a")))
    assert [(chunk.token_ids, chunk.wanted) for chunk in chunks] == [(prompt_ids(tools, REQUEST)[-1:], 1)]


def test_an_alternative_without_text_leaves_the_suggestion_its_place(tools: Tools) -> None:
    """It has gone through some forwards all the same, and the suggestion goes on from the prompt, not from there."""
    nothing = [*tools.tokenizer.encode("\n"), *tools.tokenizer.encode("x")]  # a dedent: what comes before it is dropped
    first, second = tools.tokenizer.encode(" 1")[:1], (min(tools.tokenizer.markers.end),)
    request = replace(REQUEST, alternatives=1)
    run, chunks = drive(request, tools, one_after_another([*first, *nothing, *first, *second]))
    assert (run.completion().text, run.completion().alternatives) == (
        tools.tokenizer.text_tokens()[first[0]].decode(),
        (),
    )
    prompt = prompt_ids(tools, request)
    assert [(chunk.token_ids, chunk.start) for chunk in chunks[-2:]] == [
        (prompt[-1:], len(prompt) - 1),
        (first, len(prompt)),
    ]


def test_alternatives_behind_typed_bytes_are_other_texts(tools: Tools) -> None:
    """Not the same text behind another spelling of the typed bytes."""
    healer = Healer(tools.tokenizer)
    tools = dataclasses.replace(tools, healer=healer, alternatives=Alternatives(tools.tokenizer, healer))
    request = replace(REQUEST, prompt=Prompt("import os\n" * 12, "\n", "x = are"), max_tokens=1, alternatives=2)
    typed = tokenize_prompt(request.prompt, tools.tokenizer, CONTEXT, 1, healer).typed
    assert len(typed) > 1
    wanted = [token_id for text in "123are " for token_id in tools.tokenizer.encode(text)]

    def says(chunk: Chunk) -> list[int]:
        allowed = wanted if chunk.allowed is None else chunk.allowed.tolist()
        return [next((token_id for token_id in wanted if token_id in allowed), allowed[0])] * chunk.wanted

    run, _ = drive(request, tools, says)
    assert (run.completion().text, run.completion().alternatives) == ("1", ("2", "3"))


def test_a_request_that_cannot_be_used_takes_no_workspace(tools: Tools) -> None:
    too_long = replace(REQUEST, prompt=Prompt("", "", "x = 1\n" * CONTEXT))
    for request in (replace(REQUEST, max_tokens=-1), too_long):
        run, chunks = drive(request, tools, one_after_another(()))
        assert chunks == []
        with pytest.raises(BadInput):
            run.completion()
    assert drive(replace(REQUEST, max_tokens=0), tools, one_after_another(()))[0].has_ended


def test_limit_beyond_the_context_counts_as_half_of_it(tools: Tools) -> None:
    letters = tools.tokenizer.encode("a") * CONTEXT
    run, _ = drive(replace(REQUEST, max_tokens=100_000), tools, one_after_another(letters))
    completion = run.completion()
    assert (completion.usage.generated_tokens, completion.finish_reason) == (CONTEXT // 2, "length")
