from __future__ import annotations

from collections.abc import Iterator

import pytest

from inference.backends.chunk import Chunk
from inference.backends.model import Choice
from inference.engine.active_request import ActiveRequest, Steps, Stopped
from kv_store.dry_workspace import DryWorkspace
from protocol.messages import Completion, CompletionRequest, Prompt, Usage

REQUEST = CompletionRequest("a.py", Prompt("", ""), max_tokens=2)
USAGE = Usage(1, 1, 1, 1, 0.0, 0.0, 0.0)
CHUNKS = [Chunk([number], number, DryWorkspace(4), wanted=1) for number in range(2)]


def says_what_it_hears() -> Steps[Completion]:
    heard = ""
    try:
        for chunk in CHUNKS:
            choices = yield chunk
            heard += "".join(str(choice.token_id) for choice in choices)
    except Stopped:
        return Completion(heard, "cancelled", USAGE)
    return Completion(heard, "length", USAGE)


def start(steps: Steps[Completion]) -> ActiveRequest:
    return ActiveRequest(REQUEST, lambda: False, steps)


def test_it_asks_for_one_chunk_after_another() -> None:
    run = start(says_what_it_hears())
    assert run.chunk is CHUNKS[0]
    run.resume((Choice(7, 0.0),))
    assert run.chunk is CHUNKS[1]
    assert not run.has_ended
    run.resume((Choice(8, 0.0), Choice(9, 0.0)))
    assert run.has_ended
    assert run.completion() == Completion("789", "length", USAGE)


def test_it_can_be_stopped_before_every_forward() -> None:
    for forwards in range(len(CHUNKS)):
        run = start(says_what_it_hears())
        for _ in range(forwards):
            run.resume((Choice(7, 0.0),))
        run.end(Stopped())
        assert run.has_ended
        assert run.completion() == Completion("7" * forwards, "cancelled", USAGE)


def test_an_error_is_kept_for_who_asked() -> None:
    def fails() -> Steps[Completion]:
        yield CHUNKS[0]
        raise ValueError("in the middle")

    run = start(fails())
    run.resume(())
    assert run.has_ended
    with pytest.raises(ValueError, match="in the middle"):
        run.completion()
    of_the_model = start(says_what_it_hears())
    of_the_model.end(RuntimeError("out of memory"))
    with pytest.raises(RuntimeError, match="out of memory"):
        of_the_model.completion()


def test_a_request_that_needs_no_forward_ends_at_once() -> None:
    def nothing() -> Steps[Completion]:
        yield from no_chunks()
        return Completion("", "length", USAGE)

    def no_chunks() -> Iterator[Chunk]:
        return iter(())

    assert start(nothing()).completion().finish_reason == "length"
