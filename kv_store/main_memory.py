"""KV in main memory as NumPy arrays, for a model that needs no torch: the buffer that it runs on, and safetensors files."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from kv_store.interface import Workspace

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
TENSOR_NAME = "kv"


@dataclass(frozen=True, slots=True)
class KVShape:
    """The shape of one token's KV; `dtype` is torch's name."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    dtype: str

    @property
    def item_bytes(self) -> int:
        return ITEM_BYTES[self.dtype]

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V of one token, over all layers."""
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim * self.item_bytes

    def of_tokens(self, count: int) -> tuple[int, int, int, int, int]:
        """The shape of a tensor that holds `count` tokens: [layers, 2 (K, V), kv_heads, count, head_dim]."""
        return (self.num_layers, 2, self.num_kv_heads, count, self.head_dim)


class ArrayWorkspace(Workspace):
    """KV of up to `max_tokens` tokens, at fixed addresses; implements `Workspace`.

    Payloads are contiguous arrays [layers, 2, kv_heads, tokens, head_dim] of the bits of the workspace's dtype. Raises
    MemoryError if there is no room for the buffer. A token takes room once its KV is written.
    """

    def __init__(self, shape: KVShape, max_tokens: int) -> None:
        self.shape = shape
        self.max_tokens = max_tokens
        try:
            memory = mmap.mmap(-1, max(1, shape.bytes_per_token * max_tokens))
        except OSError as error:
            raise MemoryError(f"no memory for a workspace of {max_tokens} tokens: {error}") from error
        self.bits: NDArray[Any] = np.frombuffer(memory, _bits(shape)).reshape(shape.of_tokens(max_tokens))
        self.address = int(self.bits.ctypes.data)
        self.strides = tuple(stride // shape.item_bytes for stride in self.bits.strides)
        """Between layers, K and V, heads, tokens and numbers; in numbers."""

    @property
    def bytes_per_token(self) -> int:
        return self.shape.bytes_per_token

    def export_kv(self, start: int, stop: int) -> NDArray[Any]:
        if not 0 <= start < stop <= self.max_tokens:
            raise ValueError(f"tokens [{start}, {stop}) exceed a workspace of {self.max_tokens}")
        return self.bits[:, :, :, start:stop].copy()

    def import_kv(self, start: int, payload: object, count: int, skip: int = 0) -> None:
        assert isinstance(payload, np.ndarray), f"expected an array as payload, not a {type(payload).__name__}"
        if not 0 <= start < start + count <= self.max_tokens:
            raise ValueError(f"tokens [{start}, {start + count}) exceed a workspace of {self.max_tokens}")
        size = payload.shape[3]
        if (payload.shape, payload.dtype) != (self.shape.of_tokens(size), self.bits.dtype) or skip + count > size:
            raise ValueError(f"tokens [{skip}, {skip + count}) exceed a payload of {payload.shape}, {payload.dtype}")
        self.bits[:, :, :, start : start + count] = payload[:, :, :, skip : skip + count]


class ArrayCodec:
    """Payloads of an `ArrayWorkspace` of this shape as bytes: safetensors files with the bits of the numbers."""

    def __init__(self, shape: KVShape) -> None:
        self._shape = shape

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V of one token."""
        return self._shape.bytes_per_token

    def encode(self, payload: object, count: int) -> bytes:
        """The bytes of a file with the KV of `count` tokens."""
        assert isinstance(payload, np.ndarray), f"expected an array as payload, not a {type(payload).__name__}"
        assert payload.shape == self._shape.of_tokens(count), f"{payload.shape} for {count} tokens"
        return save({TENSOR_NAME: np.ascontiguousarray(payload).view(_bits(self._shape))})

    def decode(self, data: bytes, count: int) -> object:
        """The payload. Raises ValueError unless `data` holds exactly `count` tokens of KV of this shape."""
        try:
            found = dict(deserialize(data))  # type: ignore[no-untyped-call] # its arrays lack dtypes that a file may name
        except SafetensorError as error:
            raise ValueError(f"not a safetensors file: {error}") from error
        shape, kept = self._shape.of_tokens(count), found.get(TENSOR_NAME, {})
        if (kept.get("shape"), kept.get("dtype")) != (list(shape), f"U{8 * self._shape.item_bytes}"):
            told = {name: (each["shape"], each["dtype"]) for name, each in found.items()}
            raise ValueError(f"KV of another model: {told}, expected {count} tokens of {self._shape}")
        return np.frombuffer(kept["data"], _bits(self._shape)).reshape(shape)


def _bits(shape: KVShape) -> np.dtype[Any]:
    return np.dtype(f"uint{8 * shape.item_bytes}")
