"""Chooses next tokens from logits as a chunk requests it: greedily, or drawn, among all tokens or the allowed ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from inference.backends.chunk import Chunk, Draw
from inference.backends.greedy import greedy_choices
from inference.backends.model import Choice

Numbers = NDArray[np.float64]


def choose(logits: Tensor, chunk: Chunk) -> tuple[Choice, ...]:
    """The next token for each row of logits [wanted, vocabulary]."""
    if chunk.draw is None and not chunk.top:
        return greedy_choices(logits, chunk.allowed)
    return tuple(_choice(row, chunk) for row in logits.double().cpu().numpy())


def draw(scores: Numbers, how: Draw) -> int:
    """The index of the score that `how` draws; of equal scores the first counts as the most probable."""
    weights = np.exp((scores - scores.max()) / how.temperature)
    order = np.argsort(-scores, kind="stable")[: how.top_k or None]
    weights = weights[order]
    cumulative = np.cumsum(weights / weights.sum())
    kept = int(np.searchsorted(cumulative, how.top_p)) + 1
    cumulative = cumulative[:kept]
    place = int(np.searchsorted(cumulative, how.point * cumulative[-1], side="right"))
    return int(order[min(place, len(cumulative) - 1)])


def _choice(row: Numbers, chunk: Chunk) -> Choice:
    ids = np.arange(len(row)) if chunk.allowed is None else chunk.allowed
    scores = row[ids]
    highest = scores.max()
    logprobs = scores - highest - np.log(np.exp(scores - highest).sum())
    place = int(scores.argmax()) if chunk.draw is None else draw(scores, chunk.draw)
    best = np.argsort(-scores, kind="stable")[: chunk.top]
    top = tuple((int(ids[index]), float(logprobs[index])) for index in best)
    return Choice(int(ids[place]), float(logprobs[place]), top)
