"""Chooses greedily from logits, among all tokens or among those that token healing allows."""

from __future__ import annotations

import torch
from torch import Tensor

from inference.backends.model import Choice
from inference.text.healing_vocabulary import AllowedIds


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
