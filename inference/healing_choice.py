"""The greedy choice from logits, among all tokens or among those that token healing allows."""

from __future__ import annotations

import torch
from torch import Tensor

from inference.healing_vocabulary import AllowedIds
from inference.model import Choice


def greedy_choices(logits: Tensor, allowed: AllowedIds | None = None) -> tuple[Choice, ...]:
    """The best by each row of logits [tokens, vocabulary], among the `allowed` tokens if given.

    The probability of a choice is that among the tokens it is made from.
    """
    if allowed is not None:
        logits = logits[:, torch.from_numpy(allowed).to(logits.device)]
    best = logits.argmax(dim=-1, keepdim=True)
    logprobs = logits.gather(-1, best) - logits.logsumexp(dim=-1, keepdim=True)
    places, values = best.flatten().tolist(), logprobs.flatten().tolist()
    token_ids = places if allowed is None else allowed[places].tolist()
    return tuple(map(Choice, token_ids, values))
