from __future__ import annotations

from collections.abc import Iterator

import pytest

from inference.backends.model import Choice, Chunk
from inference.engine.chunk_scheduler import ACTIVE_S, SHARED_CHUNK_S, SMALL_CHUNK, ChunkScheduler, Run
from inference.engine.completing import Stopped
from inference.engine.request import Request
from inference.engine.writer import Steps
from kv_store.interface import DryWorkspace
from protocol.messages import Completion, CompletionRequest, Prompt, Usage

CHUNK = 256
REQUEST = CompletionRequest("a.py", Prompt("", ""), max_tokens=2)
USAGE = Usage(1, 1, 1, 1, 0.0, 0.0, 0.0)
CHUNKS = [Chunk([number], number, DryWorkspace(4), wanted=1) for number in range(2)]


def forward(turns: ChunkScheduler, tokens: int, seconds: float) -> None:
    """A forward with so many tokens of a long prompt takes so long."""

    def steps() -> Steps[Completion]:
        yield Chunk([0] * tokens, 0, DryWorkspace(4))
        return Completion("", "length", USAGE)

    turns.runs = [Run(Request(REQUEST), steps())]
    assert turns.next(now=0.0) == turns.runs
    turns.took(seconds)


def test_one_client_has_whole_chunks() -> None:
    turns = ChunkScheduler(CHUNK)
    turns.note_user("a", now=0.0)
    assert turns.chunk_tokens("a", now=0.0) == CHUNK


@pytest.mark.parametrize(("tokens_per_s", "expected"), [(1e9, CHUNK), (150 / SHARED_CHUNK_S, 128), (1.0, SMALL_CHUNK)])
def test_while_another_client_is_active_a_chunk_takes_little_time(
    monkeypatch: pytest.MonkeyPatch, tokens_per_s: float, expected: int
) -> None:
    turns = ChunkScheduler(CHUNK)
    monkeypatch.setattr(turns, "_tokens_per_s", tokens_per_s)
    turns.note_user("flood", now=0.0)
    turns.note_user("typist", now=0.0)
    assert turns.chunk_tokens("flood", now=0.1) == expected
    assert turns.chunk_tokens("flood", now=ACTIVE_S) == CHUNK
    turns.note_user("flood", now=ACTIVE_S)
    assert list(turns._began) == ["flood"]  # clients that left are not kept


def test_a_small_chunk_is_not_enlarged() -> None:
    turns = ChunkScheduler(20)
    turns.note_user("flood", now=0.0)
    turns.note_user("typist", now=0.0)
    assert turns.chunk_tokens("flood", now=0.0) == 20


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((1.0,), [256]),
        ((0.01,) * 4, [512, 1024, 2048, 2048]),
        ((0.01, 0.06, 0.01), [512, 512, 1024]),
        ((0.01, 0.1, 0.1), [512, 256, 256]),
    ],
)
def test_chunks_double_on_a_gpu_while_they_take_little_time(seconds: tuple[float, ...], expected: list[int]) -> None:
    turns = ChunkScheduler(256, 2048)
    turns.note_user("a", now=0.0)
    found = [turns.chunk_tokens("a", now=0.0)]
    for took in seconds:
        forward(turns, found[-1], took)
        forward(turns, 40, 1.0)  # the rest of a prompt says little
        found.append(turns.chunk_tokens("a", now=0.1))
    assert found == [256, *expected]
    turns.note_user("b", now=0.1)
    assert turns.chunk_tokens("a", now=0.1) <= 256


@pytest.mark.parametrize(("seconds", "expected"), [(0.01, 256), (0.2, 128), (0.4, 64), (4.0, 64)])
def test_a_keystroke_waits_little_for_a_chunk_of_a_prefetch(seconds: float, expected: int) -> None:
    turns = ChunkScheduler(256)
    assert turns.chunk_tokens("a", now=0.0, prefetch=True) == 256  # nothing is known yet
    forward(turns, 256, seconds)
    assert turns.chunk_tokens("a", now=0.0, prefetch=True) == expected
    assert turns.chunk_tokens("a", now=0.0) == 256


def endless(tokens: int, wanted: int) -> Steps[Completion]:
    while True:
        yield Chunk([0] * tokens, 0, DryWorkspace(4), wanted=wanted)


def run_of(client: str, tokens: int, wanted: int) -> Run:
    return Run(Request(REQUEST, client), endless(tokens, wanted))


@pytest.mark.parametrize("slow_s", [0.022, 0.09, 2.0])
def test_a_slow_forward_of_before_hides_no_flood(slow_s: float) -> None:
    turns = ChunkScheduler(CHUNK)
    typist, flood = run_of("typist", 1, 1), run_of("flood", SMALL_CHUNK, 0)
    turns.note_user("typist", now=0.0)
    turns.note_user("flood", now=0.0)
    turns.runs = [typist]
    turns.next(now=0.0)
    turns.took(slow_s)
    turns.runs = [typist, flood]
    shared = 0
    for _ in range(120):
        sharing = turns.next(now=1.0)
        assert typist in sharing
        shared += (is_shared := flood in sharing)
        turns.took(0.022 + 0.064 * is_shared)
    assert shared < 20


def test_who_was_alone_owes_nothing() -> None:
    turns = ChunkScheduler(CHUNK)
    prefetch = run_of("one", 2 * SMALL_CHUNK, 0)
    for user in ("one", "other"):
        turns.note_user(user, now=0.0)
    turns.runs = [prefetch]
    turns.next(now=1.0)
    turns.took(0.64)  # the other might have typed
    turns.runs = []
    turns.note_user("one", now=9000.0)
    turns.note_user("other", now=9000.0)
    key = run_of("one", SMALL_CHUNK + 1, 1)
    turns.runs = [run_of("other", 1, 1), key]
    assert key in turns.next(now=9000.0)


def says_what_it_hears() -> Steps[Completion]:
    heard = ""
    try:
        for chunk in CHUNKS:
            choices = yield chunk
            heard += "".join(str(choice.token_id) for choice in choices)
    except Stopped:
        return Completion(heard, "cancelled", USAGE)
    return Completion(heard, "length", USAGE)


def start(steps: Steps[Completion]) -> Run:
    return Run(Request(REQUEST), steps)


def test_it_asks_for_one_chunk_after_another() -> None:
    run = start(says_what_it_hears())
    assert run.chunk is CHUNKS[0]
    run.resume((Choice(7, 0.0),))
    assert run.chunk is CHUNKS[1]
    assert not run.request.has_ended
    run.resume((Choice(8, 0.0), Choice(9, 0.0)))
    assert run.request.has_ended
    assert run.request.completion() == Completion("789", "length", USAGE)


def test_it_can_be_stopped_before_every_forward() -> None:
    for forwards in range(len(CHUNKS)):
        run = start(says_what_it_hears())
        for _ in range(forwards):
            run.resume((Choice(7, 0.0),))
        run.end(Stopped())
        assert run.request.has_ended
        assert run.request.completion() == Completion("7" * forwards, "cancelled", USAGE)


def test_an_error_is_kept_for_who_asked() -> None:
    def fails() -> Steps[Completion]:
        yield CHUNKS[0]
        raise ValueError("in the middle")

    run = start(fails())
    run.resume(())
    assert run.request.has_ended
    with pytest.raises(ValueError, match="in the middle"):
        run.request.completion()
    of_the_model = start(says_what_it_hears())
    of_the_model.end(RuntimeError("out of memory"))
    with pytest.raises(RuntimeError, match="out of memory"):
        of_the_model.request.completion()


def test_a_request_that_needs_no_forward_ends_at_once() -> None:
    def nothing() -> Steps[Completion]:
        yield from no_chunks()
        return Completion("", "length", USAGE)

    def no_chunks() -> Iterator[Chunk]:
        return iter(())

    assert start(nothing()).request.completion().finish_reason == "length"
