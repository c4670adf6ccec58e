"""The storage of one tier's payloads: the interface, and main memory."""

# ruff: noqa: ARG002 -- memory keeps a payload as it is

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Storage(Protocol):
    """Keeps payloads and hands out references to them."""

    page_overhead: int
    """Most bytes that a page takes here beyond its KV."""
    durable: bool
    """Whether copies here outlive the process; they then stay when a page moves up."""

    def put(self, payload: object, count: int) -> object:
        """Keep the KV of `count` tokens; returns a reference for `get`. Raises OSError if writing fails."""
        ...

    def get(self, stored: object) -> object:
        """The payload. Raises BadFileError if it is damaged."""
        ...

    def remove(self, stored: object) -> None:
        """Drop the payload; its reference becomes invalid."""
        ...

    def check(self, stored: Collection[object]) -> None:
        """Raise AssertionError unless exactly these references are kept."""
        ...

    def close(self) -> None:
        """Release system resources."""
        ...


class MemoryStorage:
    """Keeps payloads as they are; the reference is the payload."""

    page_overhead = 0
    durable = False

    def put(self, payload: object, count: int) -> object:
        return payload

    def get(self, stored: object) -> object:
        return stored

    def remove(self, stored: object) -> None:
        return

    def check(self, stored: Collection[object]) -> None:
        return

    def close(self) -> None:
        return
