"""Pages of KV as safetensors files."""

from __future__ import annotations

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from kv_store.workspace import KVShape

TENSOR_NAME = "kv"


class TensorCodec:
    """Payloads of a `KVWorkspace` of this shape as bytes. Decoded tensors are in main memory."""

    def __init__(self, shape: KVShape) -> None:
        self._shape = shape

    @property
    def bytes_per_token(self) -> int:
        """Bytes of K and V of one token."""
        return self._shape.bytes_per_token

    def encode(self, payload: object, count: int) -> bytes:
        """The bytes of a file with the KV of `count` tokens."""
        assert isinstance(payload, Tensor), f"expected a tensor as payload, not a {type(payload).__name__}"
        assert payload.shape == self._shape.of_tokens(count), f"{tuple(payload.shape)} for {count} tokens"
        return save({TENSOR_NAME: payload.cpu()})

    def decode(self, data: bytes, count: int) -> object:
        """The payload. Raises ValueError unless `data` holds exactly `count` tokens of this model's KV."""
        try:
            tensors = load(data)
        except SafetensorError as error:
            raise ValueError(f"not a safetensors file: {error}") from error
        tensor = tensors.get(TENSOR_NAME)
        if tensor is None or tensor.shape != self._shape.of_tokens(count) or tensor.dtype != self._shape.dtype:
            found = {name: (tuple(kept.shape), kept.dtype) for name, kept in tensors.items()}
            raise ValueError(f"KV of another model: {found}, expected {count} tokens of {self._shape}")
        return tensor
