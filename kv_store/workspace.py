"""The static buffers of K and V that the model runs on."""

from __future__ import annotations

import mmap
from dataclasses import dataclass

import torch
from torch import Tensor

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By bytes per element: integer dtypes through which NumPy can copy any dtype."""


@dataclass(frozen=True, slots=True)
class KVShape:
    """The shape of one token's KV."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V of one token, over all layers."""
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim * self.dtype.itemsize

    def of_tokens(self, count: int) -> tuple[int, int, int, int, int]:
        """The shape of a tensor that holds `count` tokens: [layers, 2 (K, V), kv_heads, count, head_dim]."""
        return (self.num_layers, 2, self.num_kv_heads, count, self.head_dim)


class KVWorkspace:
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

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """Views of a layer's K and V, each [1, kv_heads, max_tokens, head_dim], as attention uses them."""
        keys, values = self.buffer[index].unbind(0)
        return keys.unsqueeze(0), values.unsqueeze(0)

    def export_kv(self, start: int, stop: int) -> Tensor:
        if not 0 <= start < stop <= self.max_tokens:
            raise ValueError(f"tokens [{start}, {stop}) exceed a workspace of {self.max_tokens}")
        if self._bits is None:
            return self.buffer[:, :, :, start:stop].clone(memory_format=torch.contiguous_format)
        return torch.from_numpy(self._bits[:, :, :, start:stop].copy()).view(self.shape.dtype)

    def import_kv(self, start: int, payload: object, count: int, skip: int = 0) -> None:
        assert isinstance(payload, Tensor), f"expected a tensor as payload, not a {type(payload).__name__}"
        if not 0 <= start < start + count <= self.max_tokens:
            raise ValueError(f"tokens [{start}, {start + count}) exceed a workspace of {self.max_tokens}")
        size = payload.shape[3]
        if (payload.shape, payload.dtype) != (self.shape.of_tokens(size), self.shape.dtype) or skip + count > size:
            raise ValueError(
                f"tokens [{skip}, {skip + count}) exceed a payload of {tuple(payload.shape)}, {payload.dtype}"
            )
        if self._bits is None:
            # The copy is ordered before the forwards that read it, so no wait is needed.
            here = payload.to(self.buffer.device, non_blocking=True)
            self.buffer[:, :, :, start : start + count].copy_(here[:, :, :, skip : skip + count])
        else:
            bits = self._view(payload.cpu()).numpy()
            self._bits[:, :, :, start : start + count] = bits[:, :, :, skip : skip + count]

    def _view(self, tensor: Tensor) -> Tensor:
        return tensor.view(INTEGERS[self.shape.dtype.itemsize])


def _zeros(shape: KVShape, max_tokens: int, device: torch.device | str) -> Tensor:
    try:
        if torch.device(device).type != "cpu":
            return torch.zeros(shape.of_tokens(max_tokens), dtype=shape.dtype, device=device)
        # Pages of a fresh mapping take memory once a token is written there; torch would write zeros to all.
        mapping = mmap.mmap(-1, max(1, shape.bytes_per_token * max_tokens))
        return torch.frombuffer(mapping, dtype=shape.dtype).view(shape.of_tokens(max_tokens))
    except (torch.OutOfMemoryError, OSError) as error:
        raise MemoryError(f"no memory for a workspace of {max_tokens} tokens: {error}") from error
