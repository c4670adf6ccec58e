"""Where one tier keeps payloads: the interface, and main memory."""

# ruff: noqa: ARG002 -- memory keeps a payload as it is

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Storage(Protocol):
    """Keeps payloads and hands out references to them."""

    page_overhead: int
    """Bytes that a page costs here beyond its KV, at most."""
    durable: bool
    """Whether copies here outlive the process; they are then kept when a page moves up."""

    def put(self, payload: object, count: int) -> object:
        """Keep the KV of `count` tokens; a reference for `get`. Raises OSError where it cannot be written."""
        ...

    def get(self, stored: object) -> object:
        """The payload. Raises BadFileError where it cannot be trusted any more."""
        ...

    def remove(self, stored: object) -> None:
        """Forget the payload; its reference is void."""
        ...

    def check(self, stored: Collection[object]) -> None:
        """Raise AssertionError unless exactly these references are kept."""
        ...

    def close(self) -> None:
        """Give back what is held of the system."""
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
