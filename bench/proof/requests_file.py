"""Reads and writes recorded requests: a list of them as JSON, compressed by xz."""

from __future__ import annotations

import lzma
from collections.abc import Sequence
from pathlib import Path

import msgspec

from protocol.messages import CompletionRequest

RECORDED = Path(__file__).parents[2] / "tests" / "data" / "rustcode-3000-3400.requests.json.xz"
"""Those of the recorded session, by `bench/record_requests.py`."""


def read_requests(path: Path = RECORDED) -> list[CompletionRequest]:
    """The requests in their order; those with `max_tokens=0` are prefetches."""
    return msgspec.json.decode(lzma.decompress(path.read_bytes()), type=list[CompletionRequest])


def write_requests(path: Path, requests: Sequence[CompletionRequest]) -> None:
    """Write the requests; the same ones give the same bytes."""
    path.write_bytes(lzma.compress(msgspec.json.encode(requests), preset=9 | lzma.PRESET_EXTREME))
