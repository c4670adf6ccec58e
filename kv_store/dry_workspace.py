"""A workspace without KV, for replays that count tokens and bytes and run no model."""

# ruff: noqa: ARG002 -- nothing is copied

from __future__ import annotations


class DryWorkspace:
    """Implements `Workspace` with payloads of nothing that are accounted as if they were there."""

    def __init__(self, bytes_per_token: int) -> None:
        self.bytes_per_token = bytes_per_token

    def export_kv(self, start: int, stop: int) -> object:
        return None

    def import_kv(self, start: int, payload: object, count: int, skip: int = 0) -> None:
        return
