"""Reads recorded editing sessions, and converts each transaction into an editor's events.

The format is that of the editing-traces data sets: a JSON object, gzipped or not, with `startContent`, `endContent`
and `txns`, each `{"patches": [[position, deleted, inserted], ...]}` in code points, applied one after the other; `time`
is optional, in ISO 8601.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from lsp_server.documents.documents import Edit, Position, split_lines
from protocol.errors import BadTrace


class Patch(NamedTuple):
    """Replace `deleted` code points at `position` by `inserted`."""

    position: int
    deleted: int
    inserted: str


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded session: where it began, its transactions, and where it ended (None if not recorded).

    `times` has each transaction's time in seconds, from any beginning; it is empty if the trace lacks one.
    """

    name: str
    start: str
    end: str | None
    transactions: tuple[tuple[Patch, ...], ...]
    times: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One transaction as an editor reports it: a cursor move if it happens elsewhere, edits, the cursor after.

    Each edit is in the coordinates of the document that the edits before it left.
    """

    moved_to: Position | None
    edits: tuple[Edit, ...]
    cursor: Position
    text: str  # of the document, after the edits
    time: float | None = None  # as in `Trace.times`

    @property
    def inserted(self) -> tuple[str, ...]:
        return tuple(edit.text for edit in self.edits)

    @property
    def single_cursor(self) -> bool:
        return len(self.edits) == 1


def read_trace(path: Path) -> Trace:
    """The trace in the file; BadTrace, naming the fault, if it is not one."""
    try:
        data = path.read_bytes()
        fields = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except OSError as error:
        raise BadTrace(f"{path} cannot be read: {error.strerror or error}") from error
    except (EOFError, zlib.error, ValueError) as error:
        raise BadTrace(f"{path} is not a trace: it is no JSON, or damaged ({error})") from error
    if not isinstance(fields, dict) or not isinstance(fields.get("txns"), list):
        raise BadTrace(f"{path} is not a trace: it has no list `txns`")
    start, end = fields.get("startContent", ""), fields.get("endContent")
    if not isinstance(start, str) or not isinstance(end, str | None):
        raise BadTrace(f"{path}: startContent and endContent must be text")
    transactions = tuple(_read_transaction(path, index, item) for index, item in enumerate(fields["txns"]))
    name = path.name.removesuffix(".gz").removesuffix(".json")
    return Trace(name, start, end, transactions, _read_times(path, fields["txns"]))


def _read_times(path: Path, items: list[dict[str, Any]]) -> tuple[float, ...]:
    if not all("time" in item for item in items):
        return ()
    try:
        return tuple(datetime.fromisoformat(item["time"]).timestamp() for item in items)
    except (TypeError, ValueError) as error:
        raise BadTrace(f"{path} has a bad time: {error}") from error


def _read_transaction(path: Path, index: int, item: Any) -> tuple[Patch, ...]:
    try:
        patches = tuple(Patch(int(position), int(deleted), text) for position, deleted, text in item["patches"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadTrace(f"{path}: transaction {index} is not one ({error!r}): {str(item)[:100]}") from error
    for patch in patches:
        if patch.position < 0 or patch.deleted < 0 or not isinstance(patch.inserted, str):
            raise BadTrace(f"{path}: transaction {index} has a bad patch: {str(patch)[:100]}")
    return patches


def play(trace: Trace, start: int = 0, limit: int | None = None) -> Iterator[Step]:
    """The steps of the trace from transaction `start` on; BadTrace where a patch leaves the document.

    The caller opens the document with `text_at(trace, start)`. Transactions without patches are skipped.
    """
    text = text_at(trace, start)
    cursor: int | None = None
    stop = len(trace.transactions) if limit is None else min(start + limit, len(trace.transactions))
    for index in range(start, stop):
        patches = trace.transactions[index]
        if not patches:
            continue
        before = _cursor_before(patches)
        moved = cursor != before and not _is_forward_delete(patches, cursor)
        moved_to = position_at(text, min(before, len(text))) if moved else None
        edits = []
        for patch in patches:
            _check(trace, index, patch, text)
            stop_offset = patch.position + patch.deleted
            edits.append(Edit(position_at(text, patch.position), position_at(text, stop_offset), patch.inserted))
            text = text[: patch.position] + patch.inserted + text[stop_offset:]
        cursor = _cursor_after(patches)
        time = trace.times[index] if trace.times else None
        yield Step(moved_to, tuple(edits), position_at(text, cursor), text, time)


def text_at(trace: Trace, start: int) -> str:
    """The document before transaction `start`; BadTrace where a patch leaves the document."""
    text = trace.start
    for index, patches in enumerate(trace.transactions[:start]):
        for patch in patches:
            _check(trace, index, patch, text)
            text = text[: patch.position] + patch.inserted + text[patch.position + patch.deleted :]
    return text


def position_at(text: str, offset: int) -> Position:
    """The line and column of a code-point offset."""
    if "\r" not in text:
        return Position(text.count("\n", 0, offset), offset - text.rfind("\n", 0, offset) - 1)
    lines = split_lines(text[:offset])
    return Position(len(lines) - 1, len(lines[-1]))


def _check(trace: Trace, index: int, patch: Patch, text: str) -> None:
    if patch.position + patch.deleted > len(text):
        raise BadTrace(
            f"{trace.name}: transaction {index} changes [{patch.position}, {patch.position + patch.deleted}) "
            f"of a document of {len(text)} code points"
        )


def _main_patch(patches: tuple[Patch, ...]) -> int:
    """The patch at the cursor: the one that inserts most; the others trim white space, or are other cursors."""
    return max(range(len(patches)), key=lambda index: (len(patches[index].inserted), index))


def _cursor_before(patches: tuple[Patch, ...]) -> int:
    """The cursor before the edit: traces have none, so it is the end of the text that the main patch replaced."""
    main = _main_patch(patches)
    offset = patches[main].position + patches[main].deleted
    for patch in reversed(patches[:main]):
        if offset >= patch.position + len(patch.inserted):
            offset += patch.deleted - len(patch.inserted)
    return offset


def _cursor_after(patches: tuple[Patch, ...]) -> int:
    """The cursor after the edit: behind the main patch's insertion."""
    main = _main_patch(patches)
    offset = patches[main].position + len(patches[main].inserted)
    for patch in patches[main + 1 :]:
        if patch.position + patch.deleted <= offset:
            offset += len(patch.inserted) - patch.deleted
        elif patch.position < offset:
            offset = patch.position
    return offset


def _is_forward_delete(patches: tuple[Patch, ...], cursor: int | None) -> bool:
    """Whether the edit is a Delete key's: it deletes text behind the cursor, which does not move."""
    return len(patches) == 1 and patches[0].deleted == 1 and not patches[0].inserted and patches[0].position == cursor
