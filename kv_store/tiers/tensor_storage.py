"""Pages of KV in the memory of a device."""

# ruff: noqa: ARG002 -- a tensor knows its own size

from __future__ import annotations

import logging
from collections.abc import Collection

import torch
from torch import Tensor

from kv_store.tiers.storage import MemoryStorage

SLAB_BYTES = 64 * 2**20
"""A power of two, to which torch rounds pinned memory."""

log = logging.getLogger(__name__)


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

    Pages are copied there while the host goes on, which takes pinned memory. They lie in slabs, since torch rounds each
    allocation of it to a power of two, and each lets the host wait for the device. Without room in the slabs, as for
    many pages that are not full, a page gets ordinary memory, and the host waits for its copy.
    """

    def __init__(self, page_bytes: int, budget_bytes: int) -> None:
        """page_bytes: of a full page; budget_bytes: of all slabs, at most."""
        super().__init__("cpu")
        self._page_bytes = page_bytes
        self._pages_of_a_slab = max(1, min(SLAB_BYTES, budget_bytes) // page_bytes)
        self._most_slabs = budget_bytes // (self._pages_of_a_slab * page_bytes)
        self._slabs: list[Tensor] = []
        self._free: list[Tensor] = []  # uint8 [page_bytes] each
        self._used: dict[int, Tensor] = {}  # by address
        self._copied: torch.cuda.Event | None = None
        """Happens when all copies so far have arrived."""

    @property
    def pinned_bytes(self) -> int:
        return sum(slab.nbytes for slab in self._slabs)

    def prepare(self) -> bool:
        """Pin a slab ahead of need, which takes some milliseconds; False if there is room, or may not be more."""
        return 2 * len(self._free) < self._pages_of_a_slab and self._pin()

    def put(self, payload: object, count: int) -> object:
        assert isinstance(payload, Tensor), f"expected a tensor as payload, not a {type(payload).__name__}"
        if payload.device.type == "cpu":
            return payload
        if payload.nbytes > self._page_bytes or not (self._free or self._pin()):
            return payload.cpu()
        place = self._free.pop()
        self._used[place.data_ptr()] = place
        page = place[: payload.nbytes].view(payload.dtype).view(payload.shape)
        page.copy_(payload, non_blocking=True)
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._copied.record()
        return page

    def get(self, stored: object) -> object:
        """The payload; waits for all copies so far, and for no later work of the device."""
        if self._copied is not None:
            self._copied.synchronize()
            self._copied = None
        return stored

    def remove(self, stored: object) -> None:
        assert isinstance(stored, Tensor), f"a {type(stored).__name__} is stored instead of a tensor"
        place = self._used.pop(stored.data_ptr(), None)
        if place is not None:
            self._free.append(place)  # a copy from it that is in flight comes before any later one to it

    def check(self, stored: Collection[object]) -> None:
        super().check(stored)
        kept = {tensor.data_ptr() for tensor in stored if isinstance(tensor, Tensor)}
        assert set(self._used) <= kept, f"{len(set(self._used) - kept)} places in pinned memory belong to no page"

    def _pin(self) -> bool:
        if len(self._slabs) >= self._most_slabs:
            return False
        try:
            slab = torch.empty(self._pages_of_a_slab * self._page_bytes, dtype=torch.uint8, pin_memory=True)
        except RuntimeError as error:  # the system pins no more
            log.warning("no more than %d bytes of main memory are pinned: %s", self.pinned_bytes, error)
            self._most_slabs = len(self._slabs)
            return False
        self._slabs.append(slab)
        self._free += torch.split(slab, self._page_bytes)
        return True
