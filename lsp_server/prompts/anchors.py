"""Anchors: frozen windows of a document, laid above the cursor and found again by comparing text; their sizes.

An anchor is a value and follows no edits. It holds if its frozen lines equal the document's lines around the
cursor, so a stale anchor cannot be served, and after an undo the earlier anchor holds again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lsp_server.documents.documents import Document, LineChange, Position
from lsp_server.documents.lexing import auto_closed_length, is_auto_closed

# A window that must move is laid with this share of its budget, so that it moves rarely and in large steps.
_KEEP = 0.6
# An edge that leaves the window smaller than this share of its budget is not used again.
_MIN_FILL = 0.3
_MAX_EDGES = 32
# The estimate of characters per token changes only when it is off by more than this: each change moves window
# ends, and a moved end costs a prefill.
_TOLERANCE = 0.15
# Above any tokenizer's average on code or prose. A core whose context is smaller than the windows cuts prompts and
# counts the remaining tokens: without this limit the windows would grow, and the next count be further off.
_MOST_CHARS_PER_TOKEN = 6.4


@dataclass(frozen=True, slots=True)
class WindowBudget:
    """The sizes of the windows in tokens, and the estimate that turns them into code points."""

    prefix_tokens: int = 2048
    suffix_tokens: int = 1024
    increment_tokens: int = 512
    chars_per_token: float = 3.2

    @property
    def prefix_chars(self) -> int:
        return int(self.prefix_tokens * self.chars_per_token)

    @property
    def suffix_chars(self) -> int:
        return int(self.suffix_tokens * self.chars_per_token)

    @property
    def increment_chars(self) -> int:
        return int(self.increment_tokens * self.chars_per_token)

    def observe(self, chars: int, tokens: int) -> WindowBudget:
        """The budget after a prompt of `chars` code points was found to have `tokens` tokens."""
        if tokens < 200:
            return self  # too few for an estimate
        measured = min(chars / tokens, _MOST_CHARS_PER_TOKEN)
        if abs(measured - self.chars_per_token) <= _TOLERANCE * self.chars_per_token:
            return self
        return replace(self, chars_per_token=measured)


class StickyEdges:
    """The lines where prefix windows of one document begin, most recently used first.

    An edge serves every line below it whose window it still fits, so that prompts laid there begin with the
    same tokens; it moves with the text when lines above it are inserted or deleted.
    """

    def __init__(self) -> None:
        self._edges: list[int] = []

    def edited(self, change: LineChange) -> None:
        first, removed, added = change
        moved = (edge if edge <= first else edge + added - removed if edge >= first + removed else first for edge in self._edges)
        self._edges = list(dict.fromkeys(moved))

    def start_for(self, document: Document, line: int, budget_chars: int) -> int:
        """The line where the prefix window that ends before `line` begins, at most `budget_chars` above it."""
        lowest, comfortable, enough = line, line, line
        chars = 0
        while lowest > 0 and chars + len(document.lines[lowest - 1]) <= budget_chars:
            lowest -= 1
            chars += len(document.lines[lowest])
            if chars <= _KEEP * budget_chars:
                comfortable = lowest
            if chars <= _MIN_FILL * budget_chars:
                enough = lowest
        edge = next((edge for edge in self._edges if lowest <= edge <= enough), 0 if lowest == 0 else comfortable)
        self._edges = [edge, *(other for other in self._edges if other != edge)][:_MAX_EDGES]
        return edge


def suffix_stop(document: Document, line: int, budget_chars: int) -> int:
    """The line before which a suffix window ends that begins at `line`, within `budget_chars`."""
    chars = 0
    while line < len(document.lines) and chars + len(document.lines[line]) <= budget_chars:
        chars += len(document.lines[line])
        line += 1
    return line


# How many lines above the cursor an anchor is laid: corrections within them keep it valid.
LINES_BACK = 8
# How many lines auto-closed text may span between the cursor and the frozen suffix.
_GAP_LINES = 4


@dataclass(frozen=True, slots=True)
class Anchor:
    """Frozen windows: whole lines, and pieces of a line where a line is cut.

    The prefix is `prefix_lines` and then `prefix_tail`, which ends at column `column` of the anchor's line (both
    empty and 0 but for overlong lines). The suffix is `suffix_head`, after which `suffix_skip` code points of its
    line are left out (0 but for overlong lines), and then `suffix_lines`.
    """

    prefix_lines: tuple[str, ...]
    prefix_tail: str
    column: int
    at_start: bool  # the prefix begins with the document
    suffix_head: str
    suffix_skip: int
    suffix_lines: tuple[str, ...]
    at_end: bool  # the suffix ends with the document

    @property
    def prefix(self) -> str:
        return "".join(self.prefix_lines) + self.prefix_tail

    @property
    def suffix(self) -> str:
        return self.suffix_head + "".join(self.suffix_lines)


class Fit(NamedTuple):
    """The fit of an anchor in a document: the increment runs from `start` to the cursor, the gap begins there."""

    start: Position
    suffix_start: Position


def lay(document: Document, cursor: Position, budget: WindowBudget, edges: StickyEdges) -> tuple[Anchor, Fit]:
    """A new anchor some lines above the cursor, and where it holds.

    The suffix leaves out closing brackets behind the cursor that the increment lacks, so that typing over them
    changes nothing.
    """
    start = _anchor_position(document, cursor, budget.increment_chars // 2)
    increment = document.slice(start, cursor)
    first = edges.start_for(document, start.line, budget.prefix_chars - len(increment) - start.column)
    prefix_lines = tuple(document.lines[first : start.line])
    tail = document.lines[start.line][max(0, start.column - budget.prefix_chars) : start.column]

    line = document.lines[cursor.line]
    suffix_column = cursor.column + auto_closed_length(increment, line[cursor.column :])
    head = line[suffix_column : suffix_column + budget.suffix_chars]
    if suffix_column + len(head) < len(line):
        head = head.removesuffix("\r")  # a line end is not cut in two
    skip = len(line) - suffix_column - len(head)
    stop = cursor.line + 1
    if not skip:
        stop = suffix_stop(document, stop, budget.suffix_chars - len(head))
    anchor = Anchor(
        prefix_lines=prefix_lines,
        prefix_tail=tail,
        column=start.column,
        at_start=first == 0 and len(tail) == start.column,
        suffix_head=head,
        suffix_skip=skip,
        suffix_lines=tuple(document.lines[cursor.line + 1 : stop]),
        at_end=stop == len(document.lines) and not skip,
    )
    return anchor, Fit(start, Position(cursor.line, suffix_column))


def _anchor_position(document: Document, cursor: Position, max_chars: int) -> Position:
    """At most LINES_BACK lines and `max_chars` above the cursor; within its line only if that is overlong."""
    if cursor.column > max_chars:
        return Position(cursor.line, (cursor.column - max_chars // 2) // max_chars * max_chars)
    line, chars = cursor.line, cursor.column
    while line > 0 and cursor.line - line < LINES_BACK:
        chars += len(document.lines[line - 1])
        if chars > max_chars:
            break
        line -= 1
    return Position(line, 0)


def find(anchor: Anchor, document: Document, cursor: Position, max_chars: int) -> Fit | None:
    """The fit of the anchor for this cursor with an increment of at most `max_chars`, or None."""
    suffix_start = _find_suffix(anchor, document, cursor)
    if suffix_start is None:
        return None
    start = _find_prefix(anchor, document, cursor, max_chars)
    if start is None:
        return None
    gap = document.slice(cursor, suffix_start)
    if gap and not is_auto_closed(document.slice(start, cursor), gap):
        return None
    return Fit(start, suffix_start)


def _find_suffix(anchor: Anchor, document: Document, cursor: Position) -> Position | None:
    """The nearest place at or behind the cursor where the document's text equals the frozen suffix."""
    lines = document.lines
    for line in range(cursor.line, min(cursor.line + _GAP_LINES, len(lines))):
        column = len(lines[line]) - anchor.suffix_skip - len(anchor.suffix_head)
        first = cursor.column if line == cursor.line else 0
        if column >= first and _suffix_stands_at(anchor, lines, line, column):
            return Position(line, column)
    return None


def _suffix_stands_at(anchor: Anchor, lines: Sequence[str], line: int, column: int) -> bool:
    stop = line + 1 + len(anchor.suffix_lines)
    if anchor.at_end and stop != len(lines):
        return False
    return lines[line].startswith(anchor.suffix_head, column) and tuple(lines[line + 1 : stop]) == anchor.suffix_lines


def _find_prefix(anchor: Anchor, document: Document, cursor: Position, max_chars: int) -> Position | None:
    """The nearest place at or before the cursor where the frozen prefix ends in the document."""
    lines = document.lines
    line_above = anchor.prefix_lines[-1] if anchor.prefix_lines else None
    chars = cursor.column - anchor.column  # of the increment, if the anchor's line is the cursor's
    for line in range(cursor.line, -1, -1):
        if line < cursor.line:
            chars += len(lines[line])
        if chars > max_chars:
            return None
        if line_above is not None and (line == 0 or lines[line - 1] != line_above):
            continue  # rejects most lines without a copy of the window, or a call
        if chars >= 0 and _prefix_stands_at(anchor, lines, line):
            return Position(line, anchor.column)
    return None


def _prefix_stands_at(anchor: Anchor, lines: Sequence[str], line: int) -> bool:
    first = line - len(anchor.prefix_lines)
    if first < 0 or (anchor.at_start and first > 0):
        return False
    if len(lines[line]) < anchor.column or not lines[line].endswith(anchor.prefix_tail, 0, anchor.column):
        return False
    return tuple(lines[first:line]) == anchor.prefix_lines
