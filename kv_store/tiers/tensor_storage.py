"""Pages of KV in the memory of a device."""

# ruff: noqa: ARG002 -- a tensor knows its own size

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from kv_store.tiers.storage import MemoryStorage


class TensorStorage(MemoryStorage):
    """Implements `Storage` in the memory of a device: the reference is the tensor there."""

    def __init__(self, device: torch.device | str) -> None:
        self._device = torch.empty(0, device=device).device
        """With its index, as in a tensor's `device`."""

    def put(self, payload: object, count: int) -> object:
        assert isinstance(payload, Tensor), f"expected a tensor as payload, not a {type(payload).__name__}"
        return payload.to(self._device, non_blocking=self._device.type != "cpu")

    def check(self, stored: Collection[object]) -> None:
        for tensor in stored:
            assert isinstance(tensor, Tensor), f"a {type(tensor).__name__} is stored instead of a tensor"
            assert tensor.device == self._device, f"a page is on {tensor.device} instead of {self._device}"


class HostStorage(TensorStorage):
    """Implements `Storage` in main memory, for pages that come from a CUDA device.

    Pages are copied asynchronously into pinned memory; the first read of any page waits for all copies.
    """

    def __init__(self, source: torch.device) -> None:
        super().__init__("cpu")
        self._source = source
        self._in_flight = False

    def put(self, payload: object, count: int) -> object:
        assert isinstance(payload, Tensor), f"expected a tensor as payload, not a {type(payload).__name__}"
        self._in_flight = self._in_flight or payload.device.type != "cpu"
        return payload.to("cpu", non_blocking=True)

    def get(self, stored: object) -> object:
        if self._in_flight:
            torch.cuda.synchronize(self._source)
            self._in_flight = False
        return stored
