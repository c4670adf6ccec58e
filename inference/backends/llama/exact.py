"""Exact mode: every forward has one fixed, padded shape, so that cached and cold logits are bitwise equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from inference.backends.chunk import Chunk
from inference.backends.llama.decoder import Decoder

EXACT_TOKENS = 16
"""Tokens per padded forward, which always begins at a multiple of it."""


class ExactDecoder(Decoder):
    """A decoder whose forwards each hold EXACT_TOKENS tokens of one sequence and attend to the whole workspace.

    Kernels choose their order of summation by shapes and by a row's index. So a token is always in the same row of the
    same shape, whatever was resident: chunks begin at multiples of EXACT_TOKENS, which recomputes the tokens since the
    last multiple, and padding fills the last forward. KV of padding is overwritten before any token attends to it.
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        assert self.context_tokens % EXACT_TOKENS == 0, (
            f"a context of {self.context_tokens} tokens is no multiple of {EXACT_TOKENS}"
        )

    @property
    def alignment(self) -> int:
        return EXACT_TOKENS

    @torch.inference_mode()
    def hidden(self, chunks: Sequence[Chunk]) -> Tensor:
        """As `Decoder.hidden`, EXACT_TOKENS tokens at a time."""
        return torch.cat([self._hidden_of(chunk) for chunk in chunks])

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """As `Decoder.logits`, one token at a time."""
        return torch.cat([super(ExactDecoder, self).logits(state) for state in torch.split(hidden, 1)])

    def _hidden_of(self, chunk: Chunk) -> Tensor:
        """Hidden states [tokens, hidden] of a chunk that begins at a multiple of EXACT_TOKENS."""
        assert chunk.start % EXACT_TOKENS == 0, f"the chunk begins at {chunk.start}, no multiple of {EXACT_TOKENS}"
        count = len(chunk.token_ids)
        padded = [*chunk.token_ids, *[0] * (-count % EXACT_TOKENS)]
        blocks = [
            replace(chunk, token_ids=padded[first : first + EXACT_TOKENS], start=chunk.start + first)
            for first in range(0, len(padded), EXACT_TOKENS)
        ]
        return torch.cat([super(ExactDecoder, self).hidden([block]) for block in blocks])[:count]

    def _visible(self, stop: int) -> int:  # noqa: ARG002 - the shape is fixed
        return self.context_tokens
