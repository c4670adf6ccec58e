"""Lays windows out for a model: ids, positions, bounds of the examples, and which states predict what is learned."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from midfill_lab.training.examples.windows import Window

BOUNDS_STEP = 64
"""Tokens to which a batch has a place for the bounds of an example: their number, and what is compiled for it, varies
with much smaller examples alone."""
NO_TARGET = -100
"""The target of a place that only fills up a part; torch's cross-entropy leaves it out."""


class Batch(NamedTuple):
    """Windows of packed examples, as tensors of one device.

    Attributes:
        ids: the tokens, int64 [B, T].
        positions: of each in its example, int64 [B, T].
        bounds: where each example begins in the tokens of all windows, and where the last ends, which is repeated to
            fill up: int32 [N + 1].
        places: of the states that predict what the loss counts, in the states of all windows: int64 [L].
        targets: the tokens that they predict, or `NO_TARGET`, int64 [L].
        learned: how many of `targets` are tokens; the others are last.
    """

    ids: Tensor
    positions: Tensor
    bounds: Tensor
    places: Tensor
    targets: Tensor
    learned: int

    @classmethod
    def of(cls, window: Window, multiple: int = 1) -> Self:
        """Windows [B, T] on the CPU, with `places` and `targets` filled up to a multiple of `multiple`.

        The first token of an example is predicted from nothing: it is never learned.
        """
        rows, length = window.ids.shape
        begins = window.begins.copy()
        begins[:, 0] = True
        index = np.arange(length)
        positions = index - np.maximum.accumulate(np.where(begins, index, 0), axis=1)
        first = np.flatnonzero(begins)
        slots = -(-len(first) // (most := -(-rows * length // BOUNDS_STEP))) * most
        bounds = np.full(slots + 1, rows * length, dtype=np.int32)
        bounds[: len(first)] = first
        learned = window.learned & ~begins
        tokens = np.flatnonzero(learned)
        filled = -(-len(tokens) // multiple) * multiple
        places, targets = np.zeros(filled, dtype=np.int64), np.full(filled, NO_TARGET, dtype=np.int64)
        ids = window.ids.astype(np.int64)
        places[: len(tokens)], targets[: len(tokens)] = tokens - 1, ids[learned]
        return cls._make((*map(torch.from_numpy, (ids, positions, bounds, places, targets)), len(tokens)))

    @classmethod
    def of_rows(cls, ids: Sequence[Sequence[int]], learned: Sequence[Sequence[bool]], multiple: int = 1) -> Self:
        """A batch with an example in each row, filled up on the right, where no token of the example sees it."""
        shape = len(ids), max(map(len, ids))
        window = Window(np.zeros(shape, np.uint32), np.zeros(shape, np.bool_), np.zeros(shape, np.bool_))
        for row, (tokens, mask) in enumerate(zip(ids, learned, strict=True)):
            window.ids[row, : len(tokens)] = tokens
            window.learned[row, : len(tokens)] = mask
        return cls.of(window, multiple)

    def to(self, device: torch.device) -> Self:
        """The batch on a device; copies to a GPU overlap with what it computes."""
        pinned = device.type == "cuda"
        tensors = [tensor.pin_memory() if pinned else tensor for tensor in self if isinstance(tensor, Tensor)]
        moved = [tensor.to(device, non_blocking=pinned) for tensor in tensors]
        return type(self)._make((*moved, self.learned))
