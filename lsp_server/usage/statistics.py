"""Statistics of suggestions and typing: counts by day, model and language, their SQLite file, and their figures."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from datetime import date
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import platformdirs

from protocol.errors import BadInput

# The upper bounds of the latency classes, in milliseconds; one more class is beyond the last.
LATENCY_CLASSES_MS = (*(1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700), *(1000, 1500, 2000, 3000, 5000))


class Group(NamedTuple):
    """A bucket of counts. Counts from before midfill recorded groups have empty names."""

    day: str  # ISO 8601, local time
    model: str
    language: str


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts only, no text. Each shown suggestion has one outcome; each character is counted once."""

    shown: int = 0  # suggestions; the rest of one is not another one
    accepted: int = 0  # at once
    accepted_partly: int = 0  # by word or line, at least once
    typed_through: int = 0  # more than half of it, by hand
    dismissed: int = 0  # none of these
    accepted_characters: int = 0
    watched_30s: int = 0  # accepted characters that were looked at again after 30 s,
    kept_30s: int = 0  # and those of them that were still there
    watched_10min: int = 0
    kept_10min: int = 0
    typed_characters: int = 0
    hits: int = 0  # requests, by cache outcome
    partial_hits: int = 0
    misses: int = 0
    next_edits_shown: int = 0
    next_edits_accepted: int = 0
    next_edits_refused: int = 0  # by a command, or by an edit that contradicts them
    answers: tuple[int, ...] = (0,) * (len(LATENCY_CLASSES_MS) + 1)  # by their time, in LATENCY_CLASSES_MS

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Statistics:
        """The statistics of counts by their names; other names are ignored, since a newer version may have more."""
        answers = tuple(counts.get(name, 0) for name in _ANSWERS)
        return cls(**{name: counts.get(name, 0) for name in _NAMES}, answers=answers)

    @property
    def counts(self) -> Iterator[tuple[str, int]]:
        """The counts that are not zero, with their names in COUNTS."""
        for name in _NAMES:
            if count := getattr(self, name):
                yield name, count
        if self.answers is not _NO_ANSWERS:
            yield from ((name, count) for name, count in zip(_ANSWERS, self.answers, strict=True) if count)

    @property
    def acceptance_share(self) -> float | None:
        """The share of shown suggestions that were accepted, whole or in part; None if none was shown."""
        return _share(self.accepted + self.accepted_partly, self.shown)

    @property
    def kept_share_30s(self) -> float | None:
        """The share of accepted characters that was still there after 30 s; None before any was looked at again."""
        return _share(self.kept_30s, self.watched_30s)

    @property
    def kept_share_10min(self) -> float | None:
        """The share of accepted characters that was still there after 10 min."""
        return _share(self.kept_10min, self.watched_10min)

    @property
    def written_share(self) -> float | None:
        """The share of accepted characters in all that was typed or accepted."""
        return _share(self.accepted_characters, self.accepted_characters + self.typed_characters)

    @property
    def hit_share(self) -> float | None:
        """The share of cache hits among the requests that the core answered."""
        return _share(self.hits, self.hits + self.partial_hits + self.misses)

    def latency_ms(self, share: float) -> int | None:
        """The latency quantile at `share` in milliseconds, rounded up to its class; None without answers."""
        wanted = share * sum(self.answers)
        for count, limit in zip(accumulate(self.answers), LATENCY_CLASSES_MS, strict=False):
            if count and count >= wanted:
                return limit
        return None


def total(statistics: Iterable[Statistics]) -> Statistics:
    """The sum."""
    counts: Counter[str] = Counter()
    for each in statistics:
        counts.update(dict(each.counts))
    return Statistics.of(counts)


def one_answer(milliseconds: float) -> Statistics:
    """The statistics of one answer's time."""
    return _ONE_ANSWER[bisect_left(LATENCY_CLASSES_MS, milliseconds)]


def latency_name(limit_ms: int | None) -> str:
    """The name of the count of answers within this class; None for the class beyond the last."""
    return "answered_later" if limit_ms is None else f"answered_in_{limit_ms}_ms"


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


_CLASSES = range(len(LATENCY_CLASSES_MS) + 1)
_ANSWERS = tuple(map(latency_name, (*LATENCY_CLASSES_MS, None)))
_NAMES = tuple(field.name for field in fields(Statistics) if field.name != "answers")
COUNTS = (*_NAMES, *_ANSWERS)
_NO_ANSWERS = Statistics().answers
_ONE_ANSWER = tuple(Statistics(answers=tuple(int(index == place) for index in _CLASSES)) for place in _CLASSES)
NEXT_EDITS = {
    "shown": Statistics(next_edits_shown=1),
    "accepted": Statistics(next_edits_accepted=1),
    "refused": Statistics(next_edits_refused=1),
}  # of one offer
CACHE_OUTCOMES = {
    "hit": Statistics(hits=1),
    "partial": Statistics(partial_hits=1),
    "miss": Statistics(misses=1),
}  # of one request


_LOCK_SECONDS = 0.2  # the shutdown waits for it
_TABLE = """
CREATE TABLE IF NOT EXISTS counts_by_day (
  day TEXT, model TEXT, language TEXT, name TEXT, count INTEGER NOT NULL, PRIMARY KEY (day, model, language, name)
) WITHOUT ROWID
"""
_ADD = """
INSERT INTO counts_by_day VALUES (?, ?, ?, ?, ?)
ON CONFLICT (day, model, language, name) DO UPDATE SET count = count + excluded.count
"""


def statistics_file() -> Path:
    """The path of the user's statistics."""
    return Path(platformdirs.user_state_dir("midfill", appauthor=False)) / "statistics.sqlite"


def read_statistics(path: Path) -> dict[Group, Statistics]:
    """The statistics, by day; none if there is no file; BadInput, naming the file, if it cannot be read."""
    if not path.exists():
        return {}
    counts: dict[Group, Counter[str]] = defaultdict(Counter)
    try:
        with _opened(path) as database:
            rows = database.execute("SELECT * FROM counts_by_day ORDER BY day")
            for *group, name, count in rows:
                counts[Group(*group)][name] += count
    except sqlite3.Error as error:
        raise BadInput(f"{path} cannot be read as midfill's statistics ({error}): `midfill stats --reset` deletes it") from error
    return {group: Statistics.of(named) for group, named in counts.items()}


def add_to_file(path: Path, more: Mapping[tuple[Group, str], int]) -> None:
    """Add to the counts, by group and name; language servers of several windows may do so at the same time.

    On failure it raises OSError or sqlite3.Error, and adds nothing.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _opened(path) as database:
        database.executemany(_ADD, [(*group, name, count) for (group, name), count in more.items()])


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The database, in a transaction."""
    with closing(sqlite3.connect(path, timeout=_LOCK_SECONDS)) as database, database:
        database.execute(_TABLE)
        yield database


logger = logging.getLogger(__name__)

_SAVE_SECONDS = 10.0


class Recorder:
    """Counts while it is `enabled`. A failed write keeps its counts, and is tried again with the next one."""

    def __init__(self, path: Path, model: Callable[[], str], save_s: float = _SAVE_SECONDS) -> None:
        self.enabled = True
        self._path = path
        self._model = model
        self._save_s = save_s
        self._unsaved: Counter[tuple[Group, str]] = Counter()
        self._saving: asyncio.Task[None] | None = None

    def bucket(self, language: str) -> Group:
        """The (day, model, language) bucket for counts made now."""
        return Group(date.today().isoformat(), self._model(), language)

    def count(self, group: Group, more: Statistics) -> None:
        """Add statistics to be saved later."""
        if not self.enabled:
            return
        for name, count in more.counts:
            self._unsaved[group, name] += count
        if self._saving is None or self._saving.done():
            self._saving = asyncio.create_task(self._save_later())

    def close(self) -> None:
        """Write the unsaved counts, and end. A write under way is finished by its thread before the process ends."""
        if self._saving is not None:
            self._saving.cancel()
        self._unsaved = self._rest_of(self._take())

    async def _save_later(self) -> None:
        await asyncio.sleep(self._save_s)
        self._unsaved.update(await asyncio.to_thread(self._rest_of, self._take()))

    def _take(self) -> Counter[tuple[Group, str]]:
        unsaved, self._unsaved = self._unsaved, Counter()
        return unsaved

    def _rest_of(self, more: Counter[tuple[Group, str]]) -> Counter[tuple[Group, str]]:
        """Write these counts; returns those that could not be written."""
        if more:
            try:
                add_to_file(self._path, more)
            except (OSError, sqlite3.Error) as error:
                logger.warning("cannot save the statistics: %s", error)
                return more
        return Counter()
