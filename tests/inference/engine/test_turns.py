from __future__ import annotations

import pytest

from inference.engine.turns import ACTIVE_S, SHARED_CHUNK, SHARED_CHUNK_S, Turns

CHUNK = 256


def test_one_client_has_whole_chunks() -> None:
    turns = Turns(CHUNK)
    turns.note_client("a", now=0.0)
    assert turns.chunk_tokens("a", now=0.0) == CHUNK


@pytest.mark.parametrize(("tokens_per_s", "expected"), [(1e9, CHUNK), (150 / SHARED_CHUNK_S, 128), (1.0, SHARED_CHUNK)])
def test_while_another_client_is_active_a_chunk_takes_little_time(
    monkeypatch: pytest.MonkeyPatch, tokens_per_s: float, expected: int
) -> None:
    turns = Turns(CHUNK)
    monkeypatch.setattr(turns, "_tokens_per_s", tokens_per_s)
    turns.note_client("flood", now=0.0)
    turns.note_client("typist", now=0.0)
    assert turns.chunk_tokens("flood", now=0.1) == expected
    assert turns.chunk_tokens("flood", now=ACTIVE_S) == CHUNK
    turns.note_client("flood", now=ACTIVE_S)
    assert list(turns._began) == ["flood"]  # clients that left are not kept


def test_a_small_chunk_is_not_enlarged() -> None:
    turns = Turns(48)
    turns.note_client("flood", now=0.0)
    turns.note_client("typist", now=0.0)
    assert turns.chunk_tokens("flood", now=0.0) == 48


@pytest.mark.parametrize(("seconds", "expected"), [(1.0, 256), (0.01, 512), (0.004, 1280), (0.0001, 2048)])
def test_chunks_grow_with_the_speed_of_a_gpu(seconds: float, expected: int) -> None:
    turns = Turns(256, 2048)
    turns.note_client("a", now=0.0)
    assert turns.chunk_tokens("a", now=0.0) == 256  # nothing is known yet
    for tokens, took in ((256, seconds), (40, 1.0)):  # the rest of a prompt says little
        turns._long_chunk_tokens = tokens
        turns.took(took)
    assert turns.chunk_tokens("a", now=0.1) == expected
    turns.note_client("b", now=0.1)
    assert turns.chunk_tokens("a", now=0.1) <= 256
