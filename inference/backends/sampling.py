"""Chooses next tokens from logits as a chunk requests it: greedily, or drawn, among all tokens or the allowed ones."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from inference.backends.chunk import Chunk, Draw
from inference.backends.model import Choice
from inference.text.healing_vocabulary import AllowedIds

Numbers = NDArray[np.float64]


def greedy_choices(logits: Tensor, allowed: AllowedIds | None = None) -> tuple[Choice, ...]:
    """The best token of each row of logits [tokens, vocabulary], among the `allowed` tokens if given.

    Probabilities are normalized over the tokens that the choice is made from.
    """
    if allowed is None:
        return choices(*best_tokens(logits))
    places, logprobs = best_tokens(logits[:, torch.from_numpy(allowed).to(logits.device)])
    return choices(torch.from_numpy(allowed)[places.cpu()], logprobs)


def best_tokens(logits: Tensor) -> tuple[Tensor, Tensor]:
    """For each row of logits [tokens, vocabulary], the best token and its log-probability, each [tokens]."""
    best = logits.argmax(dim=-1, keepdim=True)
    logprobs = logits.gather(-1, best) - logits.logsumexp(dim=-1, keepdim=True)
    return best.flatten(), logprobs.flatten()


def choices(token_ids: Tensor, logprobs: Tensor) -> tuple[Choice, ...]:
    """Converts tokens and log-probabilities, each [tokens], to `Choice` values."""
    return tuple(map(Choice, token_ids.tolist(), logprobs.tolist()))


def choose(logits: Tensor, chunk: Chunk) -> tuple[Choice, ...]:
    """The next token for each row of logits [wanted, vocabulary]."""
    if chunk.forced:
        forced = torch.tensor(chunk.forced, device=logits.device)
        return choices(forced, logits.gather(-1, forced[:, None])[:, 0] - logits.logsumexp(dim=-1))
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


def highest_of(scores: Numbers, count: int) -> NDArray[np.intp]:
    """The indices of the highest scores, the highest first, and of equal ones the first; sorts only these."""
    if not count:
        return np.empty(0, np.intp)
    least = np.partition(scores, -count)[-count] if count < len(scores) else -np.inf
    candidates = np.flatnonzero(scores >= least)
    return candidates[np.argsort(-scores[candidates], kind="stable")[:count]]


def _choice(row: Numbers, chunk: Chunk) -> Choice:
    ids = np.arange(len(row)) if chunk.allowed is None else chunk.allowed
    scores = row[ids]
    highest = scores.max()
    logprobs = scores - highest - np.log(np.exp(scores - highest).sum())
    place = int(scores.argmax()) if chunk.draw is None else draw(scores, chunk.draw)
    top = tuple((int(ids[index]), float(logprobs[index])) for index in highest_of(scores, chunk.top))
    return Choice(int(ids[place]), float(logprobs[place]), top)
