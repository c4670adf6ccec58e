"""Chooses next tokens from logits as a chunk requests it: greedily, or drawn, among all tokens or the allowed ones."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from inference.backends.drawing import choice_of, draw
from inference.backends.model import Choice, Chunk
from inference.text.token_boundaries import AllowedIds

BEST = 256
"""Of the highest scores, this many leave a GPU before a token is drawn from them; all, if they are not enough."""


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
    return tuple(
        _choice_of_best(row, chunk) or choice_of(row.cpu().double().numpy(), chunk)  # mps has no float64
        for row in logits
    )


def _choice_of_best(row: Tensor, chunk: Chunk) -> Choice | None:
    """As `choice_of`, from the BEST highest scores alone, which is all that then leaves a GPU.

    None if the choice can be another, as for a token drawn from the many improbable ones, or is not on a GPU.
    """
    if row.device.type != "cuda" or chunk.allowed is not None or len(row) <= BEST or chunk.top >= BEST:
        return None
    scores = row.double()
    temperature = 1.0 if chunk.draw is None else chunk.draw.sampling.temperature
    highest, ids = scores.topk(BEST)
    totals = torch.stack([scores.logsumexp(-1), ((scores - highest[0]) / temperature).logsumexp(-1)])
    found = torch.cat([highest, totals, ids.double()]).cpu().numpy()
    best, (total, weight), places = found[:BEST], found[BEST : BEST + 2], found[BEST + 2 :].astype(np.int64)
    order = np.lexsort((places, -best))
    best, places = best[order], places[order]
    certain = int((best > best[-1]).sum())  # of equal scores, others may come first
    unseen = max(0.0, float(np.exp(weight) - np.exp((best - best[0]) / temperature).sum()))
    place = 0 if chunk.draw is None else draw(best, chunk.draw, unseen)
    if place is None or max(place + 1, chunk.top) > certain:
        return None
    top = tuple((int(places[index]), float(best[index] - total)) for index in range(chunk.top))
    return Choice(int(places[place]), float(best[place] - total), top)
