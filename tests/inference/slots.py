"""Workspaces of an engine, and a store that never has what they had."""

from __future__ import annotations

from inference.engine.engine import Engine
from inference.engine.slots import Slot
from kv_store.store import PagedStore
from kv_store.tiers import MemoryStorage, Tier


def last_slot(engine: Engine) -> Slot:
    """The workspace that was used last, of an engine that is at no work."""
    assert not engine._slots._in_use
    return engine._slots._idle[-1]


def store_without_room() -> PagedStore:
    """One for workspaces of 4 bytes per token."""
    return PagedStore([Tier("none", 0, MemoryStorage())], 4)
