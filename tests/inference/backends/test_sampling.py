from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inference.backends.drawing import draw, highest_of
from inference.backends.model import Chunk, Draw
from inference.backends.sampling import choose, greedy_choices
from kv_store.interface import DryWorkspace
from protocol.messages import Sampling

SCORES = np.log(np.array([0.1, 0.4, 0.2, 0.3]))


def a_chunk(how: Draw | None = None, top: int = 0, allowed: list[int] | None = None) -> Chunk:
    ids = None if allowed is None else np.array(allowed)
    return Chunk([1], 0, DryWorkspace(bytes_per_token=4), 1, ids, how, top)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        (Draw(0.0, Sampling(1.0)), 1),
        (Draw(0.39, Sampling(1.0)), 1),
        (Draw(0.41, Sampling(1.0)), 3),
        (Draw(0.71, Sampling(1.0)), 2),
        (Draw(0.95, Sampling(1.0)), 0),
        (Draw(0.95, Sampling(1.0, top_p=0.5)), 3),
        (Draw(0.95, Sampling(1.0, top_k=1)), 1),
        (Draw(0.95, Sampling(1.0, top_p=0.01)), 1),
        (Draw(0.999, Sampling(1e-9)), 1),
        (Draw(0.999, Sampling(1e9)), 0),
    ],
)
def test_draw(how: Draw, expected: int) -> None:
    assert draw(SCORES, how) == expected


def test_frequencies_are_those_of_the_temperature() -> None:
    points = (np.arange(20_000) + 0.5) / 20_000
    counts = np.bincount([draw(SCORES, Draw(point, Sampling(2.0))) for point in points], minlength=4) / len(points)
    expected = np.exp(SCORES / 2)
    np.testing.assert_allclose(counts, expected / expected.sum(), atol=1e-3)


@given(
    scores=st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=20),
    how=st.builds(
        Draw,
        st.floats(0, 1, exclude_max=True),
        st.builds(Sampling, st.floats(1e-6, 100), st.floats(0, 1, exclude_min=True), st.integers(0, 25)),
    ),
)
def test_any_draw_is_among_those_kept(scores: list[float], how: Draw) -> None:
    chosen = draw(np.array(scores), how)
    assert 0 <= chosen < len(scores)
    if how.sampling.top_k:
        assert sum(score > scores[chosen] for score in scores) < how.sampling.top_k


def test_log_probabilities_are_the_models_own_whatever_is_drawn() -> None:
    logits = torch.from_numpy(SCORES)[None].float()
    (greedy,) = greedy_choices(logits)
    (chosen,) = choose(logits, a_chunk(top=2))
    assert chosen.token_id == greedy.token_id
    assert chosen.logprob == pytest.approx(greedy.logprob, abs=1e-6)
    assert [token_id for token_id, _ in chosen.top] == [1, 3]
    (drawn,) = choose(logits, a_chunk(Draw(0.95, Sampling(1.0)), top=1))
    assert (drawn.token_id, drawn.top[0][0]) == (0, 1)
    assert drawn.logprob == pytest.approx(np.log(0.1), abs=1e-6)


def test_only_allowed_tokens_are_drawn_and_reported() -> None:
    logits = torch.from_numpy(SCORES)[None].float()
    (chosen,) = choose(logits, a_chunk(Draw(0.9, Sampling(1.0)), top=4, allowed=[0, 2]))
    assert chosen.token_id == 0
    assert [token_id for token_id, _ in chosen.top] == [2, 0]
    assert chosen.logprob == pytest.approx(np.log(1 / 3), abs=1e-6)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(0, 40))
def test_the_highest_are_those_of_a_stable_sort(numbers: list[int], count: int) -> None:
    scores = np.array(numbers, dtype=np.float64)
    assert highest_of(scores, count).tolist() == np.argsort(-scores, kind="stable")[:count].tolist()


def test_forced_choices_have_their_own_logprobs() -> None:
    chunk = replace(a_chunk(), token_ids=[1, 2], wanted=2, forced=(0, 3))
    logits = torch.from_numpy(np.stack([SCORES + 5, SCORES - 7]))
    assert chunk.needs_logits
    assert [choice.token_id for choice in choose(logits, chunk)] == [0, 3]
    assert [choice.logprob for choice in choose(logits, chunk)] == pytest.approx([np.log(0.1), np.log(0.3)])


@pytest.mark.filterwarnings("error")
def test_a_temperature_near_0_draws_the_most_probable_one() -> None:
    assert draw(np.array([1.0, 3.0, 2.0]), Draw(0.999, Sampling(1e-300))) == 1
