"""Statistics of suggestions: a value of counts, and the database on this machine that it is added to."""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import platformdirs

from protocol.errors import BadInput

# The upper bounds of the latency classes, in milliseconds; one more class is beyond the last.
LATENCY_CLASSES_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
_LOCK_SECONDS = 0.2  # the shutdown waits for it


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts only, no text."""

    shown: int = 0  # suggestions; the rest of one is not another one
    accepted: int = 0  # whole
    accepted_partly: int = 0  # by word or line, at least once
    typed: int = 0  # by hand, more than half of it
    rejected: int = 0  # shown, and none of these
    accepted_characters: int = 0
    watched_characters: int = 0  # of those, in suggestions that were looked at again 30 s later
    kept_characters: int = 0  # of those, still there
    answers: tuple[int, ...] = (0,) * (len(LATENCY_CLASSES_MS) + 1)  # by their time, in LATENCY_CLASSES_MS

    def __add__(self, other: Statistics) -> Statistics:
        pairs = ((getattr(self, field.name), getattr(other, field.name)) for field in fields(self))
        sums = (tuple(map(sum, zip(a, b, strict=True))) if isinstance(a, tuple) else a + b for a, b in pairs)
        return Statistics(*sums)  # type: ignore[arg-type]

    @property
    def kept_share(self) -> float | None:
        """The share of accepted characters that was still there 30 s later; None before any was watched."""
        return self.kept_characters / self.watched_characters if self.watched_characters else None

    def latency_ms(self, share: float) -> int | None:
        """The latency quantile at `share` in milliseconds, rounded up to its class; None without answers."""
        wanted = share * sum(self.answers)
        for count, limit in zip(_running_sums(self.answers), LATENCY_CLASSES_MS, strict=False):
            if count and count >= wanted:
                return limit
        return None


_CLASSES = range(len(LATENCY_CLASSES_MS) + 1)
_ONE_ANSWER = tuple(Statistics(answers=tuple(int(index == place) for index in _CLASSES)) for place in _CLASSES)


def one_answer(milliseconds: float) -> Statistics:
    """The statistics of one answer's time."""
    return _ONE_ANSWER[bisect_left(LATENCY_CLASSES_MS, milliseconds)]


def statistics_file() -> Path:
    """The path of the user's statistics."""
    return Path(platformdirs.user_state_dir("midfill", appauthor=False)) / "statistics.sqlite"


def read_statistics(path: Path) -> Statistics:
    """The database's statistics, zeros if it does not exist; BadInput, naming it, if it cannot be read."""
    if not path.exists():
        return Statistics()
    try:
        with _opened(path) as database:
            counts = dict(database.execute("SELECT name, count FROM counts").fetchall())
        answers = tuple(counts.pop(f"answers_{place}", 0) for place in _CLASSES)
        return Statistics(**counts, answers=answers)
    except (sqlite3.Error, TypeError) as error:
        raise BadInput(f"{path} does not hold midfill's statistics ({error!r}): remove it") from error


def add_to_file(path: Path, more: Statistics) -> None:
    """Add to the counts; language servers of several windows may do so at the same time.

    On failure it raises OSError or sqlite3.Error, and adds nothing.
    """
    counts = asdict(more)
    counts |= {f"answers_{place}": count for place, count in enumerate(counts.pop("answers"))}
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _opened(path) as database:
        database.execute("CREATE TABLE IF NOT EXISTS counts (name TEXT PRIMARY KEY, count INTEGER NOT NULL)")
        database.executemany(
            "INSERT INTO counts VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET count = count + excluded.count",
            [(name, count) for name, count in counts.items() if count],
        )


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The database, in a transaction."""
    with closing(sqlite3.connect(path, timeout=_LOCK_SECONDS)) as database, database:
        yield database


def _running_sums(counts: tuple[int, ...]) -> list[int]:
    return [sum(counts[: index + 1]) for index in range(len(counts))]
