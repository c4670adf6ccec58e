"""KV and states as tensors: the static buffers that the model runs on, what the store keeps, and safetensors files."""

from __future__ import annotations

import logging
import mmap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from kv_store.interface import Workspace
from kv_store.main_memory import ArrayCodec, KVShape
from kv_store.snapshots import StateSnapshot
from kv_store.tiers import MemoryStorage

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes per element: integer dtypes through which NumPy can copy any dtype."""


def torch_dtype(shape: KVShape) -> torch.dtype:
    """The dtype of the numbers."""
    found: torch.dtype = getattr(torch, shape.dtype)
    return found


class KVWorkspace(Workspace):
    """KV of up to `max_tokens` tokens, at fixed addresses; implements `Workspace`.

    Payloads are contiguous tensors [layers, 2, kv_heads, tokens, head_dim] of the workspace's dtype; on import they
    may be on any device. Raises MemoryError if there is no room for the
    buffers. In main memory, a token takes room once its KV is written.
    """

    def __init__(self, shape: KVShape, max_tokens: int, device: torch.device | str = "cpu") -> None:
        self.shape = shape
        self.max_tokens = max_tokens
        self.buffer = _zeros(shape, max_tokens, device)
        """[layers, 2 (K, V), kv_heads, max_tokens, head_dim]"""
        # Pages are small. In main memory NumPy copies them on this thread; torch would wake its worker threads for
        # each, which takes a hundred times as long on a busy machine.
        self._bits = self._view(self.buffer).numpy() if self.buffer.device.type == "cpu" else None

    @property
    def bytes_per_token(self) -> int:
        return self.shape.bytes_per_token

    @property
    def device(self) -> torch.device:
        return self.buffer.device

    @property
    def address(self) -> int | None:
        """Of the buffer, if it is in main memory."""
        return None if self._bits is None else self.buffer.data_ptr()

    @property
    def strides(self) -> tuple[int, ...]:
        return self.buffer.stride()

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Views of a layer's K and V, each [1, kv_heads, max_tokens, head_dim], as attention uses them."""
        keys, values = self.buffer[index].unbind(0)
        return keys.unsqueeze(0), values.unsqueeze(0)

    def export_kv(self, start: int, stop: int) -> Tensor:
        if not 0 <= start < stop <= self.max_tokens:
            raise ValueError(f"tokens [{start}, {stop}) exceed a workspace of {self.max_tokens}")
        if self._bits is None:
            return self.buffer[:, :, :, start:stop].clone(memory_format=torch.contiguous_format)
        return torch.from_numpy(self._bits[:, :, :, start:stop].copy()).view(torch_dtype(self.shape))

    def import_kv(self, start: int, payload: object, count: int, skip: int = 0) -> None:
        assert isinstance(payload, Tensor), f"expected a tensor as payload, not a {type(payload).__name__}"
        if not 0 <= start < start + count <= self.max_tokens:
            raise ValueError(f"tokens [{start}, {start + count}) exceed a workspace of {self.max_tokens}")
        size = payload.shape[3]
        if (payload.shape, payload.dtype) != (self.shape.of_tokens(size), torch_dtype(self.shape)) or skip + count > size:
            raise ValueError(f"tokens [{skip}, {skip + count}) exceed a payload of {tuple(payload.shape)}, {payload.dtype}")
        if self._bits is None:
            # The copy is ordered before the forwards that read it, so no wait is needed.
            here = payload.to(self.buffer.device, non_blocking=True)
            self.buffer[:, :, :, start : start + count].copy_(here[:, :, :, skip : skip + count])
        else:
            bits = self._view(payload.cpu()).numpy()
            self._bits[:, :, :, start : start + count] = bits[:, :, :, skip : skip + count]

    def _view(self, tensor: Tensor) -> Tensor:
        return tensor.view(INTEGERS[self.shape.item_bytes])


def _zeros(shape: KVShape, max_tokens: int, device: torch.device | str) -> Tensor:
    try:
        if torch.device(device).type != "cpu":
            return torch.zeros(shape.of_tokens(max_tokens), dtype=torch_dtype(shape), device=device)
        # Pages of a fresh mapping take memory once a token is written there; torch would write zeros to all.
        mapping = mmap.mmap(-1, max(1, shape.bytes_per_token * max_tokens))
        return torch.frombuffer(mapping, dtype=torch_dtype(shape)).view(shape.of_tokens(max_tokens))
    except (torch.OutOfMemoryError, OSError) as error:
        raise MemoryError(f"no memory for a workspace of {max_tokens} tokens: {error}") from error


# ruff: noqa: ARG002 -- a tensor knows its own size


SLAB_BYTES = 64 * 2**20
"""A power of two, to which torch rounds pinned memory."""

COPIED_AT_ONCE = 16 * 2**20
"""Bytes that wait on the device at most, beyond the tiers' budgets, to be copied together."""

log = logging.getLogger(__name__)


class TensorStorage(MemoryStorage):
    """Implements `Storage` in the memory of a device: the reference is the tensor there."""

    def __init__(self, device: torch.device | str) -> None:
        self._device = torch.empty(0, device=device).device
        """With its index, as in a tensor's `device`."""

    def put(self, payload: object, count: int) -> object:
        assert isinstance(payload, Tensor), f"expected a tensor as payload, not a {type(payload).__name__}"
        return payload.to(self._device, non_blocking=self._device.type != "cpu")


class HostStorage(TensorStorage):
    """Implements `Storage` in main memory, for pages that come from a CUDA device.

    Pages are copied there while the host goes on, which takes pinned memory. They lie in slabs, since torch rounds each
    allocation of it to a power of two, and each lets the host wait for the device. Without room in the slabs, as for
    many pages that are not full, a page gets ordinary memory, and the host waits for its copy.

    A page waits until many can be copied: those side by side in a slab are gathered on the device, and leave in one
    copy, since the host takes longer to start one than a page takes to arrive.
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
        self._waiting: dict[int, tuple[Tensor, Tensor]] = {}  # by the address of a page, that and its payload
        self._waiting_bytes = 0
        self._copied: torch.cuda.Event | None = None
        """Happens when all copies so far have arrived."""

    @property
    def pinned_bytes(self) -> int:
        return sum(slab.nbytes for slab in self._slabs)

    def prepare(self) -> bool:
        """Start the copies that wait, or pin a slab ahead of need, for some milliseconds; False if nothing is left."""
        return self._copy() or (2 * len(self._free) < self._pages_of_a_slab and self._pin())

    def put(self, payload: object, count: int) -> object:
        assert isinstance(payload, Tensor), f"expected a tensor as payload, not a {type(payload).__name__}"
        if payload.device.type == "cpu":
            return payload
        if payload.nbytes > self._page_bytes or not (self._free or self._pin()):
            return payload.cpu()
        place = self._free.pop()
        self._used[place.data_ptr()] = place
        page = place[: payload.nbytes].view(payload.dtype).view(payload.shape)
        self._waiting[page.data_ptr()] = page, payload
        self._waiting_bytes += page.nbytes
        if self._waiting_bytes >= COPIED_AT_ONCE:
            self._copy()
        return page

    def get(self, stored: object) -> object:
        """The payload; waits for all copies so far, and for no later work of the device."""
        self._copy()
        if self._copied is not None:
            self._copied.synchronize()
            self._copied = None
        return stored

    def remove(self, stored: object) -> None:
        assert isinstance(stored, Tensor), f"a {type(stored).__name__} is stored instead of a tensor"
        place = self._used.pop(stored.data_ptr(), None)
        if place is not None:
            self._free.append(place)  # a copy from it that is in flight comes before any later one to it
            if self._waiting.pop(stored.data_ptr(), None) is not None:
                self._waiting_bytes -= stored.nbytes

    def _copy(self) -> bool:
        """Start the copies of all pages that wait; False if none does."""
        if not self._waiting:
            return False
        for copies in _side_by_side(self._waiting.values()):
            _copy_together(copies)
        self._waiting.clear()
        self._waiting_bytes = 0
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._copied.record()
        return True

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
        self._free += reversed(torch.split(slab, self._page_bytes))  # pages are given places in the order of these
        return True


def _side_by_side(copies: Iterable[tuple[Tensor, Tensor]]) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Copies in the order of their addresses, those of equal shape together that lie side by side in one slab."""
    together: list[tuple[Tensor, Tensor]] = []
    for page, payload in sorted(copies, key=lambda copy: copy[0].data_ptr()):
        last = together[-1][0] if together else None
        if last is not None and not (
            page.shape == last.shape
            and page.data_ptr() == last.data_ptr() + last.nbytes
            and page.untyped_storage().data_ptr() == last.untyped_storage().data_ptr()
        ):
            yield together
            together = []
        together.append((page, payload))
    if together:
        yield together


def _copy_together(copies: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Copy the payloads to their pages in one copy; one by one without memory to gather them."""
    first = copies[0][0]
    if len(copies) > 1:
        try:
            gathered = torch.cat([payload for _, payload in copies])
        except torch.OutOfMemoryError:
            pass
        else:
            first.as_strided(gathered.shape, gathered.stride()).copy_(gathered, non_blocking=True)
            return
    for page, payload in copies:
        page.copy_(payload, non_blocking=True)


class TensorCodec(ArrayCodec):
    """Payloads of a `KVWorkspace` of this shape as bytes. Decoded tensors are in main memory."""

    def encode(self, payload: object, count: int) -> bytes:
        assert isinstance(payload, Tensor), f"expected a tensor as payload, not a {type(payload).__name__}"
        return super().encode(payload.cpu().view(INTEGERS[self._shape.item_bytes]).numpy(), count)

    def decode(self, data: bytes, count: int) -> object:
        return torch.as_tensor(super().decode(data, count)).view(torch_dtype(self._shape))


@dataclass(frozen=True, slots=True)
class StateLayout:
    """The tensors of a snapshot's state: shape and device of each, None where a layer has none."""

    tensors: tuple[tuple[tuple[int, ...], torch.device] | None, ...]

    @classmethod
    def of(cls, state: Sequence[Tensor | None]) -> StateLayout:
        return cls(tuple(None if tensor is None else (tuple(tensor.shape), tensor.device) for tensor in state))

    def placed(self, tensors: Sequence[Tensor | None]) -> StateSnapshot:
        """A snapshot of these, each on its device."""
        pairs = zip(tensors, self.tensors, strict=True)
        state = tuple(None if tensor is None or goal is None else tensor.to(goal[1]) for tensor, goal in pairs)
        return StateSnapshot(state, sum(tensor.nbytes for tensor in state if tensor is not None))


class HostSnapshots(MemoryStorage):
    """Implements `Storage` in main memory, for snapshots of a model on other devices."""

    def __init__(self, layout: StateLayout) -> None:
        self._layout = layout

    def put(self, payload: object, count: int) -> object:
        return tuple(None if tensor is None else tensor.cpu() for tensor in _tensors_of(payload))

    def get(self, stored: object) -> object:
        assert isinstance(stored, tuple), f"a {type(stored).__name__} is stored instead of tensors"
        return self._layout.placed(stored)


HEADER_BYTES = 128
"""Most that a safetensors file says about a tensor."""


class StateCodec:
    """Snapshots of a model with this layout as bytes. Decoded tensors are on its devices."""

    def __init__(self, layout: StateLayout) -> None:
        self._layout = layout
        self.overhead = HEADER_BYTES * (1 + len(layout.tensors))
        """Most bytes beyond those of the tensors."""

    def encode(self, payload: object) -> bytes:
        state = enumerate(_tensors_of(payload))
        return save({str(place): tensor.cpu().contiguous() for place, tensor in state if tensor is not None})

    def decode(self, data: bytes) -> StateSnapshot:
        """Raises ValueError unless `data` holds exactly the tensors of this model's states."""
        try:
            tensors = load(data)
        except SafetensorError as error:
            raise ValueError(f"not a safetensors file: {error}") from error
        wanted = {str(place): goal[0] for place, goal in enumerate(self._layout.tensors) if goal is not None}
        found = {name: tuple(kept.shape) for name, kept in tensors.items()}
        if found != wanted or not all(tensor.is_floating_point() for tensor in tensors.values()):
            raise ValueError(f"a state of another model: {found}, expected {wanted}")
        return self._layout.placed([tensors.get(str(place)) for place in range(len(self._layout.tensors))])


def _tensors_of(payload: object) -> tuple[Tensor | None, ...]:
    assert isinstance(payload, StateSnapshot), f"expected a snapshot as payload, not a {type(payload).__name__}"
    assert isinstance(payload.state, tuple), f"expected tensors as a state, not a {type(payload.state).__name__}"
    return payload.state
