"""The SQLite file of the statistics on this machine: counts by day, model and language."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import platformdirs

from lsp_server.usage.statistics import Group, Statistics
from protocol.errors import BadInput

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
    counts: dict[Group, dict[str, int]] = defaultdict(dict)
    try:
        with _opened(path) as database:
            rows = database.execute("SELECT * FROM counts_by_day ORDER BY day")
            for *group, name, count in rows:
                counts[Group(*group)][name] = count
    except sqlite3.Error as error:
        raise BadInput(
            f"{path} cannot be read as midfill's statistics ({error}): `midfill stats --reset` deletes it"
        ) from error
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
