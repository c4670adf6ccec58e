"""A workspace without KV, for replays that count tokens and bytes without a model."""

# ruff: noqa: ARG002 -- nothing is copied

from __future__ import annotations


class DryWorkspace:
    """Implements `Workspace` with empty payloads that are counted at full size."""

    def __init__(self, bytes_per_token: int) -> None:
        self.bytes_per_token = bytes_per_token

    def export_kv(self, start: int, stop: int) -> object:
        return None

    def import_kv(self, start: int, payload: object, count: int, skip: int = 0) -> None:
        return
