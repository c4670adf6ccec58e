"""Exact mode: every forward has one fixed, padded shape, so that cached and cold logits are the same to the bit."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from inference.decoder import Decoder

EXACT_TOKENS = 16
"""Tokens per forward. A forward always begins at a multiple of it."""


class ExactDecoder(Decoder):
    """A decoder whose every forward computes EXACT_TOKENS tokens that attend to the whole workspace.

    Kernels choose their order of summation by the shapes they are given and by where in them a row stands. So a token
    always stands in the same row of a forward of the same shape, whatever was resident: a forward that begins in
    between computes the tokens since the last multiple of EXACT_TOKENS again, and padding fills the rest. What the
    padding writes into the workspace is overwritten before any token may look at it.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        assert self.context_tokens % EXACT_TOKENS == 0, f"a workspace of {self.context_tokens} tokens"
        self._stop = 0
        self._since_multiple: list[int] = []  # the tokens before `_stop`, from a multiple on

    @property
    def alignment(self) -> int:
        return EXACT_TOKENS

    @torch.inference_mode()
    def hidden(self, token_ids: Sequence[int], start: int) -> Tensor:
        """As `Decoder.hidden`; `start` is a multiple of EXACT_TOKENS, or where the last forward ended."""
        if start % EXACT_TOKENS:
            assert start == self._stop, f"a forward at {start}, but the last one ended at {self._stop}"
            block = [*self._since_multiple, *token_ids]
        else:
            block = list(token_ids)
        aligned = start + len(token_ids) - len(block)
        padded = block + [0] * (-len(block) % EXACT_TOKENS)
        states = [
            super(ExactDecoder, self).hidden(padded[first : first + EXACT_TOKENS], aligned + first)
            for first in range(0, len(padded), EXACT_TOKENS)
        ]
        self._stop = start + len(token_ids)
        self._since_multiple = block[len(block) // EXACT_TOKENS * EXACT_TOKENS :]
        return torch.cat(states)[len(block) - len(token_ids) : len(block)]

    def _visible(self, stop: int) -> int:  # noqa: ARG002 - the shape is fixed
        return self.context_tokens
