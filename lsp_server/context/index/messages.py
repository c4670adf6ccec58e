"""What the keeper and the index's process say to each other: requests and answers, one JSON object per line."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

When = Literal["no", "due", "opened", "now"]
"""When the whole folder is scanned: not, if its cost makes that due, at the start of a window, or in any case."""


@dataclass(frozen=True, slots=True)
class Request:
    """A folder, its files that have changed (their paths in it, with `/`), and whether to scan all of it."""

    folder: str
    files: tuple[str, ...] = ()
    scan: When = "no"

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Request:
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request: counts of files, CPU seconds, and the seconds until a scan is due.

    `is_busy` says that another process writes the index now, and `is_unfit` that the folder is not indexed.
    """

    again_s: float
    is_busy: bool = False
    is_unfit: bool = False
    looked_at: int = 0
    checked: int = 0
    read: int = 0
    removed: int = 0
    cpu_s: float = 0.0

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> Answer:
        return cls(**json.loads(line))
