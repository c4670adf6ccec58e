"""Brings the index of a workspace folder up to date: reads what changed, removes what vanished or is excluded."""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from lsp_server.context.cutting import FileStamp
from lsp_server.context.identifiers import uses
from lsp_server.context.index.database import IndexWriter
from lsp_server.context.index.grammars import GRAMMAR_BY_SUFFIX, definitions_in

logger = logging.getLogger(__name__)

_MOST_FILES = 20_000
_MOST_FOLDERS = 20_000
_MOST_BYTES = 512 * 1024  # of a file: a longer one is generated or data
_MOST_NAMES = 20_000  # that a file uses, repetitions included
_MOST_SECONDS = 300.0
_MOST_INDEX_BYTES = 256 * 1024 * 1024
# Folders with copies of other projects, or with none of the user's text.
_SKIPPED = frozenset(
    {"node_modules", "__pycache__", "site-packages", "bower_components", "vendor", "third_party", "venv"}
)


def scan(folder: Path, writer: IndexWriter, reason: Callable[[str], str | None]) -> None:
    """Bring the index of `folder` up to date; `reason` says why the document of a URI is excluded, None if it is not.

    Unreadable files are skipped with a line in the log. A scan that a limit ends keeps what it has read; files that
    it did not come to keep their earlier entries.
    """
    until = time.monotonic() + _MOST_SECONDS
    known = writer.stamps()
    seen: set[str] = set()
    complete = True
    for path, stamp in _files(folder, reason):
        if len(seen) >= _MOST_FILES or time.monotonic() > until or writer.size > _MOST_INDEX_BYTES:
            complete = False
            break
        seen.add(path)
        if known.get(path) == stamp:
            continue
        try:
            with (folder / path).open("rb") as file:
                source = file.read(_MOST_BYTES)
        except OSError as error:
            logger.info("%s is not in the index: %s", path, error)
            seen.discard(path)
            continue
        writer.put(path, stamp, definitions_in(source, GRAMMAR_BY_SUFFIX[Path(path).suffix]), _used(source))
    gone = known.keys() - seen
    if not complete:  # of what was not reached, only what must not be there leaves
        gone = {path for path in gone if not (folder / path).is_file() or reason((folder / path).as_uri()) is not None}
    writer.remove(gone)


def _used(source: bytes) -> frozenset[str]:
    """The identifiers that a file uses."""
    lines = source.decode("utf-8", "replace").splitlines()
    return frozenset(islice((name for _, names in uses(lines) for name in sorted(names)), _MOST_NAMES))


def _files(folder: Path, reason: Callable[[str], str | None]) -> Iterator[tuple[str, FileStamp]]:
    """The source files that may be in prompts, breadth first, without following links."""
    waiting, folders = [folder], 0
    while waiting and folders < _MOST_FOLDERS:
        here, folders = waiting.pop(0), folders + 1
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name)
        except OSError as error:
            logger.info("%s is not in the index: %s", here, error)
            continue
        for entry in entries:
            path = Path(entry.path)
            try:
                if entry.is_dir(follow_symlinks=False):
                    if not _is_skipped(path, reason):
                        waiting.append(path)
                elif path.suffix in GRAMMAR_BY_SUFFIX and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_size <= _MOST_BYTES and reason(path.as_uri()) is None:
                        relative = path.relative_to(folder).as_posix()
                        relative.encode()  # SQLite holds no names that are not UTF-8: ValueError
                        yield relative, (status.st_mtime_ns, status.st_size)
            except (OSError, ValueError) as error:
                logger.info("%s is not in the index: %s", path, error)


def _is_skipped(folder: Path, reason: Callable[[str], str | None]) -> bool:
    """Whether no file in the folder can be in the index; a file that is not there stands for those that may be."""
    if folder.name.startswith(".") or folder.name in _SKIPPED or (folder / "pyvenv.cfg").is_file():
        return True
    return all(
        reason((folder / f"source{suffix}").as_uri()) is not None for suffix in (".py", ".ts", ".js", ".go", ".rs")
    )
