"""Regions: the lines around the cursor that a next edit may rewrite, and what of the document a prompt shows beside
them.

A region that is laid stays while the user types in it, so that each key changes the prompt only from the cursor on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lsp_server.documents.documents import LineChange
from lsp_server.next_edit.history import Event
from protocol.errors import BadInput
from protocol.messages import Snippet

NEAR_END_LINES = 2
"""A region is laid anew if the cursor comes so near to its end while the document goes on."""

GROWTH = 1.5
"""A region is laid anew if it has grown to this multiple of its lines."""

MOST_BYTES = 32_768
"""Of a region: lines that are longer are data."""


@dataclass(frozen=True, slots=True)
class RegionSize:
    """How much of a document a format shows; bytes in UTF-8, or lines where `region_bytes` is 0.

    `whole` takes the whole document, whatever the other fields say.
    """

    region_bytes: int = 0
    lines_above: int = 0
    lines_below: int = 0
    context_bytes: int = 0  # around the region, one half above and one below
    whole: bool = False


@dataclass(frozen=True, slots=True)
class RegionAnchor:
    """What a prompt shows of a document but the region's text: laid at rest, and kept while its region is edited.

    The region is the lines [first, last) of the document. `above` and `below` are the lines around it that the prompt
    shows; they identify it. `cuts` are further lines, counted from `first`, that a format marks. `original` is the
    region's text before the newest event.
    """

    path: str
    first: int
    last: int
    above: tuple[str, ...]
    below: tuple[str, ...]
    laid_lines: int  # of the region, when it was laid
    cuts: tuple[int, ...] = ()
    original: tuple[str, ...] = ()
    session_start: tuple[str, ...] = ()  # the document when editing began, if the format shows it
    events: tuple[Event, ...] = ()
    snippets: tuple[Snippet, ...] = ()

    def fits(self, lines: Sequence[str]) -> bool:
        """Whether the document's lines around the region are those that were laid."""
        above = tuple(lines[max(0, self.first - len(self.above)) : self.first])
        below = tuple(lines[self.last : self.last + len(self.below)])
        return (above, below) == (self.above, self.below)

    def holds(self, lines: Sequence[str], row: int) -> bool:
        """Whether the anchor fits, and the cursor's line is well inside of its region, which has not grown too much."""
        if not self.fits(lines) or not self.first <= row < self.last:
            return False
        room_below = self.last == len(lines) or row < self.last - NEAR_END_LINES
        room_above = self.first == 0 or row >= self.first + NEAR_END_LINES
        return room_below and room_above and self.last - self.first <= max(GROWTH * self.laid_lines, self.laid_lines + 2)

    def followed(self, change: LineChange) -> RegionAnchor | None:
        """The anchor after an edit above, in or below its region; None if the edit crosses its border."""
        first, removed, added = change
        grown = added - removed
        if first + removed <= self.first:
            return replace(self, first=self.first + grown, last=self.last + grown)
        if first >= self.last:
            return self
        if first < self.first or first + removed > self.last:
            return None
        start, end = first - self.first, first - self.first + removed
        cuts = (cut if cut <= start else cut + grown if cut >= end else start + min(cut - start, added) for cut in self.cuts)
        region_lines = self.last - self.first + grown
        kept = tuple(dict.fromkeys(cut for cut in cuts if 0 < cut < region_lines))
        return replace(self, last=self.last + grown, cuts=kept)


def lines_around(lines: Sequence[str], row: int, size: RegionSize) -> tuple[int, int]:
    """The lines [first, last) around the cursor's `row` that the size allows; at least that line.

    Raises BadInput if they have more than MOST_BYTES.
    """
    if size.whole:
        first, last = 0, len(lines)
    elif size.region_bytes:
        first, last = _grown(lines, row, row + 1, size.region_bytes - _bytes(lines[row]))
    else:
        first, last = max(0, row - size.lines_above), min(len(lines), row + 1 + size.lines_below)
    if (count := sum(map(_bytes, lines[first:last]))) > MOST_BYTES:
        raise BadInput(f"the lines around the cursor have {count} bytes, more than the {MOST_BYTES} of a next edit")
    return first, last


def context_of(lines: Sequence[str], first: int, last: int, size: RegionSize) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The whole lines above and below the region that the size allows."""
    top, end = first, last
    left = size.context_bytes // 2
    while top > 0 and (left := left - _bytes(lines[top - 1])) >= 0:
        top -= 1
    left = size.context_bytes // 2
    while end < len(lines) and (left := left - _bytes(lines[end])) >= 0:
        end += 1
    return tuple(lines[top:first]), tuple(lines[last:end])


def _grown(lines: Sequence[str], first: int, last: int, left: int) -> tuple[int, int]:
    """Lines above and below in turns, while there are bytes left."""
    up = down = True
    while up or down:
        if up := first > 0 and (cost := _bytes(lines[first - 1])) <= left:
            first, left = first - 1, left - cost
        if down := last < len(lines) and (cost := _bytes(lines[last])) <= left:
            last, left = last + 1, left - cost
    return first, last


def _bytes(line: str) -> int:
    return len(line.encode(errors="replace"))


def reverted(region: Sequence[str], first: int, path: str, event: Event | None) -> tuple[str, ...]:
    """The region's lines before the event, if it lies in the region as it was left; else as they are."""
    if event is not None and event.path == path:
        start = event.first - first
        end = start + len(event.new)
        if start >= 0 and tuple(region[start:end]) == event.new:
            return (*region[:start], *event.old, *region[end:])
    return tuple(region)
