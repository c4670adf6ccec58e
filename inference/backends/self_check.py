"""Self-check of a model on transformers' modules: its logits are the same at once, in pieces, and after a crop."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from inference.backends.model import Chunk
from kv_store.interface import Workspace
from protocol.errors import BadModel

TOKENS = 48
CUTS = (16, 17, 40)
"""Where the pieces end: one of a single token, as in decoding, among others."""
TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 0.06, torch.float16: 0.01}
"""Root mean square of what rounding changes in logits, in their standard deviations: some ten times what it is in four
layers, since it grows with their number. A single logit varies too much to tell a fault in 16 bits."""


class Checked(Protocol):
    """What the check needs of a model."""

    @property
    def context_tokens(self) -> int: ...

    def new_workspace(self) -> Workspace: ...

    def logits(self, chunk: Chunk) -> Tensor: ...


def check_reuse(model: Checked, vocabulary: int, dtype: torch.dtype, where: str) -> None:
    """BadModel, naming `where`, if logits depend on how a text reaches the model, which reused KV could not mend."""
    count = min(TOKENS, model.context_tokens)
    token_ids = [(7919 * (place + 1)) % vocabulary for place in range(count)]

    def logits(workspace: Workspace, start: int, stop: int) -> Tensor:
        return model.logits(Chunk(token_ids[start:stop], start, workspace, stop - start)).cpu()

    at_once = logits(model.new_workspace(), 0, count)
    workspace, ends = model.new_workspace(), [*(cut for cut in CUTS if cut < count), count]
    in_pieces = [logits(workspace, start, stop) for start, stop in zip([0, *ends], ends, strict=False)]
    first = ends[0]
    _compare(torch.cat(in_pieces), at_once, "in pieces", dtype, where)
    if first < count:
        _compare(logits(workspace, first, count), at_once[first:], "after a crop", dtype, where)


def _compare(found: Tensor, expected: Tensor, how: str, dtype: torch.dtype, where: str) -> None:
    difference = float((found - expected).square().mean().sqrt() / expected.std())
    if not difference <= TOLERANCE[dtype]:  # not a number is none either
        raise BadModel(
            f"{where}: transformers computes other logits for a text {how} than at once (by {difference:.2g} standard "
            "deviations), so resident KV cannot be reused: choose another model, or run it in llama-server (--engine)"
        )
