"""A workspace for models on several devices: each device holds the KV of its layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from kv_store.workspace import KVShape, KVWorkspace


class SplitWorkspace:
    """Implements `Workspace`; its payloads equal those of a `KVWorkspace` on the first device."""

    def __init__(self, shape: KVShape, max_tokens: int, devices: Sequence[torch.device]) -> None:
        """`devices` holds each layer's device."""
        assert len(devices) == shape.num_layers, f"{len(devices)} devices for {shape.num_layers} layers"
        self.shape = shape
        self.max_tokens = max_tokens
        self._parts = [
            KVWorkspace(KVShape(len(list(run)), shape.num_kv_heads, shape.head_dim, shape.dtype), max_tokens, device)
            for device, run in groupby(devices)
        ]

    @property
    def bytes_per_token(self) -> int:
        return self.shape.bytes_per_token

    @property
    def device(self) -> torch.device:
        """Device of payloads."""
        return self._parts[0].device

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """K and V of each layer, each [1, kv_heads, max_tokens, head_dim], on the layer's device."""
        return [part.layer(index) for part in self._parts for index in range(part.shape.num_layers)]

    def export_kv(self, start: int, stop: int) -> Tensor:
        return torch.cat([part.export_kv(start, stop).to(self.device) for part in self._parts])

    def import_kv(self, start: int, payload: object, count: int, skip: int = 0) -> None:
        assert isinstance(payload, Tensor), f"expected a tensor as payload, not a {type(payload).__name__}"
        if payload.shape[0] != self.shape.num_layers:
            raise ValueError(f"the payload has {payload.shape[0]} layers, but the model has {self.shape.num_layers}")
        first = 0
        for part in self._parts:
            part.import_kv(start, payload[first : first + part.shape.num_layers], count, skip)
            first += part.shape.num_layers
