"""The workspace of a model with recurrent layers on the CPU kernel: KV, and the states of those layers as one array."""

from __future__ import annotations

import torch
from torch import Tensor

from kv_store.main_memory import KVShape
from kv_store.snapshots import Snapshots, StateSnapshot
from kv_store.workspace import KVWorkspace


class RecurrentWorkspace(KVWorkspace):
    """Also implements `Workspace`: a snapshot is the state of all layers after some tokens, as (float32 [values],)."""

    snapshots: Snapshots

    def __init__(self, shape: KVShape, max_tokens: int, state_values: int, snapshots: Snapshots) -> None:
        """`shape` is of the layers with attention."""
        super().__init__(shape, max_tokens)
        self.snapshots = snapshots
        self._state_values = state_values
        self._running: tuple[int, Tensor] | None = None  # a state that no snapshot has yet, and its position

    def states(self, start: int, stop: int) -> tuple[Tensor | None, Tensor]:
        """The state after `start` tokens, None if it is empty, and the memory for that after `stop`, maybe the same.

        There must be a snapshot at `start`, or a call before this one must have ended there.
        """
        if self._running is not None and self._running[0] == start:
            state = self._running[1]
            self._running = stop, state
            return state, state
        self.snapshots.drop_beyond(start)
        before, after = self._snapshot(start), torch.empty(self._state_values)
        self._running = stop, after
        return before, after

    def keep(self) -> None:
        """Make a snapshot of the state that the last call has left."""
        if self._running is not None:
            position, state = self._running
            self.snapshots.put(position, StateSnapshot((state,), state.nbytes))
            self._running = None

    def import_kv(self, start: int, payload: object, count: int, skip: int = 0) -> None:
        self.snapshots.drop_beyond(start)
        self._running = None
        super().import_kv(start, payload, count, skip)

    def _snapshot(self, position: int) -> Tensor | None:
        if not position:
            return None
        kept = self.snapshots[position].state
        assert isinstance(kept, tuple), f"expected a tuple of one tensor as snapshot, not a {type(kept).__name__}"
        (state,) = kept
        assert isinstance(state, Tensor), f"expected a tensor in a snapshot, not a {type(state).__name__}"
        return state
