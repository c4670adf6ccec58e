"""A least-recently-used cache, bounded by entries and by bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class LRUCache(Generic[Key, Value]):
    """A cache whose entries carry their size in bytes; an entry larger than the budget is not kept."""

    def __init__(self, max_entries: int, max_bytes: int) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self.used_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        """The keys, the least recently used first."""
        return iter(self._entries)

    def get(self, key: Key) -> Value | None:
        """The value, which becomes the most recently used; None if missing."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def remove(self, key: Key) -> None:
        if key in self._entries:
            self.used_bytes -= self._entries.pop(key)[1]

    def put(self, key: Key, value: Value, size_bytes: int) -> None:
        """Keep `value`, and evict the oldest entries that no longer fit."""
        self.remove(key)
        if size_bytes > self._max_bytes:
            return
        self._entries[key] = (value, size_bytes)
        self.used_bytes += size_bytes
        while len(self._entries) > self._max_entries or self.used_bytes > self._max_bytes:
            _, (_, freed) = self._entries.popitem(last=False)
            self.used_bytes -= freed
