"""The greedy choice from logits, among all tokens or among those that token healing allows."""

from __future__ import annotations

import torch
from torch import Tensor

from inference.healing_vocabulary import AllowedIds
from inference.model import Choice


def greedy_choice(logits: Tensor, allowed: AllowedIds | None) -> Choice:
    """The best of the `allowed` tokens by logits [vocabulary]; its probability is that among them."""
    if allowed is None:
        best = int(logits.argmax())
        return Choice(best, float(logits[best] - logits.logsumexp(-1)))
    among = logits[torch.from_numpy(allowed).to(logits.device)]
    place = int(among.argmax())
    return Choice(int(allowed[place]), float(among[place] - among.logsumexp(-1)))
