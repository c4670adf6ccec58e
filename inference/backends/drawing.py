"""Chooses next tokens from logits in main memory as a chunk requests it, without torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from inference.backends.model import Choice, Chunk, Draw

Numbers = NDArray[np.float64]


def choose_in_memory(logits: NDArray[Any], chunk: Chunk) -> tuple[Choice, ...]:
    """The next token for each row of logits [wanted, vocabulary]."""
    rows = logits.astype(np.float64)
    if chunk.forced:
        totals = [float(row.max() + np.log(np.exp(row - row.max()).sum())) for row in rows]
        forced = zip(chunk.forced, rows, totals, strict=True)
        return tuple(Choice(token_id, float(row[token_id]) - total) for token_id, row, total in forced)
    return tuple(choice_of(row, chunk) for row in rows)


def draw(scores: Numbers, how: Draw, unseen: float = 0.0) -> int | None:
    """The index of the score that `how` draws; of equal scores the first counts as the most probable.

    unseen: the weight, relative to the highest score's, of further scores that are all lower. None if the draw depends
    on one of them.
    """
    sampling = how.sampling
    if sampling.top_k:
        if unseen and sampling.top_k > len(scores):
            return None
        unseen = 0.0
    with np.errstate(over="ignore"):  # a temperature near 0 leaves the highest scores alone
        weights = np.exp((scores - scores.max()) / sampling.temperature)
    order = np.argsort(-scores, kind="stable")[: sampling.top_k or None]
    weights = weights[order]
    cumulative = np.cumsum(weights / (weights.sum() + unseen))
    kept = int(np.searchsorted(cumulative, sampling.top_p)) + 1
    if unseen and kept > len(order) and sampling.top_p < 1:
        return None
    cumulative = cumulative[:kept]
    whole = 1.0 if unseen and kept > len(order) else cumulative[-1]
    place = int(np.searchsorted(cumulative, how.point * whole, side="right"))
    if unseen and place == len(order):
        return None
    return int(order[min(place, len(cumulative) - 1)])


def highest_of(scores: Numbers, count: int) -> NDArray[np.intp]:
    """The indices of the highest scores, the highest first, and of equal ones the first; sorts only these."""
    if not count:
        return np.empty(0, np.intp)
    least = np.partition(scores, -count)[-count] if count < len(scores) else -np.inf
    candidates = np.flatnonzero(scores >= least)
    return candidates[np.argsort(-scores[candidates], kind="stable")[:count]]


def choice_of(row: Numbers, chunk: Chunk) -> Choice:
    """The next token from the logits of one place, drawn or the most probable one."""
    ids = np.arange(len(row)) if chunk.allowed is None else chunk.allowed
    scores = row[ids]
    highest = scores.max()
    logprobs = scores - highest - np.log(np.exp(scores - highest).sum())
    place = scores.argmax() if chunk.draw is None else draw(scores, chunk.draw)
    assert place is not None, "all scores are seen"
    top = tuple((int(ids[index]), float(logprobs[index])) for index in highest_of(scores, chunk.top))
    return Choice(int(ids[place]), float(logprobs[place]), top)
