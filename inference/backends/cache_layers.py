"""A sequence's caches in transformers' modules: KV on a workspace's static buffers, and recurrent layers' states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import CacheLayerMixin, DummyLayer, LinearAttentionCacheLayerMixin, LinearAttentionLayer

from kv_store.interface import Workspace
from kv_store.main_memory import KVShape
from kv_store.snapshots import Snapshots, StateSnapshot
from kv_store.workspace import KVWorkspace

CacheLayer = CacheLayerMixin | LinearAttentionCacheLayerMixin | DummyLayer


class WorkspaceLayer(CacheLayerMixin):  # type: ignore[no-untyped-call] # transformers leaves its base class untyped
    """One layer's KV for transformers' attention: a view of the workspace up to the last written token."""

    is_sliding = False  # keeps all tokens; a model with a shorter window masks the others

    def __init__(self, keys: Tensor, values: Tensor, tokens: int) -> None:
        """`keys` and `values` are buffers [1, kv_heads, max_tokens, head_dim], of which `tokens` tokens are written."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._keys, self._values = keys, values
        self._tokens = tokens
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Does nothing: the buffers exist already."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append states [1, kv_heads, tokens, head_dim]; returns all written so far."""
        start, self._tokens = self._tokens, self._tokens + key_states.shape[-2]
        self._keys[:, :, start : self._tokens] = key_states
        self._values[:, :, start : self._tokens] = value_states
        return self._keys[:, :, : self._tokens], self._values[:, :, : self._tokens]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._tokens + query_length, 0

    def get_seq_length(self) -> int:
        return self._tokens

    def get_max_length(self) -> int:
        return int(self._keys.shape[2])


@dataclass(frozen=True, slots=True)
class LayerState:
    """A layer's state after some tokens, by number: a convolution's last inputs, and a recurrence, or one of them."""

    convolved: tuple[Tensor | None, ...]
    recurrent: tuple[Tensor | None, ...]


class StateLayer(LinearAttentionLayer):
    """One layer's state for transformers' recurrent modules, which goes on from a `LayerState` and leaves it as it is.

    The modules return fresh tensors, which are kept as they are, except where they take one token: there they write
    into the convolution's inputs, and some (`writes_state`) into the recurrence, which are copied before.
    """

    def __init__(self, states: int, before: LayerState | None, *, copies: bool) -> None:
        """`states`: their number. `copies`: the forward may write into the recurrence."""
        super().__init__(number_of_states=states)
        self.returned = False
        """Whether the module has returned a fresh recurrence."""
        if before is None:
            return
        for index, (convolved, recurrent) in enumerate(zip(before.convolved, before.recurrent, strict=True)):
            self.conv_states[index] = None if convolved is None else convolved.clone()
            self.recurrent_states[index] = recurrent.clone() if copies and recurrent is not None else recurrent
            self.has_previous_state[index] = True

    def update_conv_state(self, conv_states: Tensor, state_idx: int = 0, conv_kernel_size: int | None = None, **_: Any) -> Tensor:
        """Append inputs [1, channels, tokens], and keep the last ones; returns those kept before and these."""
        before = self.conv_states[state_idx]
        every = conv_states if before is None else torch.cat([before, conv_states], dim=-1)
        width = conv_kernel_size or (conv_states if before is None else before).shape[-1]
        every = torch.nn.functional.pad(every, (max(0, width - every.shape[-1]), 0))
        self.conv_states[state_idx] = every[..., -width:].clone()
        self.has_previous_state[state_idx] = True
        return every

    def update_recurrent_state(self, recurrent_states: Tensor, state_idx: int = 0, **_: Any) -> Tensor:
        before = self.recurrent_states[state_idx]
        if before is not None:
            recurrent_states = recurrent_states.to(before.dtype)
        if recurrent_states.untyped_storage().nbytes() > recurrent_states.nbytes:
            recurrent_states = recurrent_states.clone()  # a part of a larger tensor, which it would keep in memory
        self.recurrent_states[state_idx] = recurrent_states
        self.returned = True
        return recurrent_states

    def state(self) -> LayerState:
        """The state after the forward."""
        return LayerState(tuple(self.conv_states.values()), tuple(self.recurrent_states.values()))


class AttentionAndStateLayer(StateLayer, WorkspaceLayer):  # type: ignore[no-untyped-call, override]
    """A layer with attention beside a recurrence."""

    is_compileable = False

    def __init__(self, attention: WorkspaceLayer, states: int, before: LayerState | None, *, copies: bool) -> None:
        super().__init__(states, before, copies=copies)
        self.__dict__.update(attention.__dict__)


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """The cache of a layer for a sequence: KV of every token, or a number of states, or both, or nothing."""

    keeps_kv: bool
    states: int = 0
    writes_state: bool = False  # its module writes into the recurrence that it goes on from


class SplitWorkspace(Workspace):
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

    def cache_layers(self, start: int, count: int) -> list[CacheLayer]:  # noqa: ARG002 - it matters to states
        """The cache of transformers' modules in a forward of `count` tokens behind the first `start`."""
        return [WorkspaceLayer(keys, values, start) for keys, values in self.layers()]

    def keep(self, layers: Sequence[CacheLayer], length: int) -> None:
        """Keep what a forward has left in its layers beside KV: the sequence has `length` tokens now."""

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


class StateWorkspace(SplitWorkspace):
    """Also implements `Workspace`: KV of the layers with attention, and snapshots of the others' states."""

    snapshots: Snapshots

    def __init__(
        self, shape: KVShape, max_tokens: int, devices: Sequence[torch.device], kinds: Sequence[LayerMemory], snapshots: Snapshots
    ) -> None:
        """`shape` and `devices` are of the layers with attention."""
        super().__init__(shape, max_tokens, devices)
        self.snapshots = snapshots
        self._kinds = tuple(kinds)

    def cache_layers(self, start: int, count: int) -> list[CacheLayer]:
        """A snapshot at `start` must be kept, unless it is 0."""
        self.snapshots.drop_beyond(start)
        states = self._states(start)
        buffers = iter(self.layers())
        layers: list[CacheLayer] = []
        for kind in self._kinds:
            copies = kind.writes_state and count == 1
            attention = WorkspaceLayer(*next(buffers), start) if kind.keeps_kv else None
            if not kind.states:
                layers.append(attention or DummyLayer())  # type: ignore[no-untyped-call]
            elif attention:
                layers.append(AttentionAndStateLayer(attention, kind.states, next(states), copies=copies))
            else:
                layers.append(StateLayer(kind.states, next(states), copies=copies))
        return layers

    def keep(self, layers: Sequence[CacheLayer], length: int) -> None:
        states = [layer.state() for layer in layers if isinstance(layer, StateLayer)]
        tensors = tuple(tensor for state in states for tensor in (*state.convolved, *state.recurrent))
        self.snapshots.put(length, StateSnapshot(tensors, sum(each.nbytes for each in tensors if each is not None)))

    def import_kv(self, start: int, payload: object, count: int, skip: int = 0) -> None:
        self.snapshots.drop_beyond(start)
        super().import_kv(start, payload, count, skip)

    def _states(self, start: int) -> Iterator[LayerState | None]:
        """Of each layer that has one, or several of a number."""
        tensors = iter(self._tensors(start)) if start else None
        for kind in self._kinds:
            if kind.states:
                taken = None if tensors is None else tuple(islice(tensors, 2 * kind.states))
                yield None if taken is None else LayerState(taken[: kind.states], taken[kind.states :])

    def _tensors(self, start: int) -> tuple[Tensor | None, ...]:
        tensors = self.snapshots[start].state
        assert isinstance(tensors, tuple), f"expected tensors as a snapshot, not a {type(tensors).__name__}"
        return tensors
