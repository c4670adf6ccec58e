"""The history of edits: groups a user's edits into events, which the prompts of next-edit models show.

Edits within NEAR_LINES lines of each other are one event, and the newest event is split at its last pause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from lsp_server.documents.documents import LineChange, changed_ranges

NEAR_LINES = 8
PAUSE_S = 1.0
MAX_SHOWN = 6
MAX_DIFF_BYTES = 6 * 1024
CONTEXT_LINES = 3  # around a hunk
# To compare more lines would take a keystroke's time, and the diff is nearly always longer than MAX_DIFF_BYTES.
_MOST_COMPARED = 4_000


Range = tuple[int, int, int, int]
"""Lines that differ: first and last before, first and last after."""


@dataclass(frozen=True, slots=True)
class Event:
    """A change of one document: the lines `old`, from line `first` on, became `new`; unchanged lines stand around.

    Lines have their line ends. `first` counts from 0.
    """

    path: str
    first: int
    old: tuple[str, ...]
    new: tuple[str, ...]
    above: tuple[str, ...] = ()  # at most CONTEXT_LINES
    below: tuple[str, ...] = ()
    accepted: bool = False  # the user accepted a proposal, and typed none of it

    @property
    def is_shown(self) -> bool:
        """Whether it changes something, and its diff is not too long."""
        return bool(diff(self))


@lru_cache(maxsize=64)
def diff(event: Event) -> str:
    """The hunks of the event as a unified diff without the files' names; empty if they would be too long."""
    if max(len(event.old), len(event.new)) > _MOST_COMPARED:
        return ""
    old, new = ((*event.above, *lines, *event.below) for lines in (event.old, event.new))
    top = event.first - len(event.above) + 1
    text = ""
    for hunk in _grouped(list(changed_ranges(old, new))):
        begin, new_begin = (max(0, hunk[0][side] - CONTEXT_LINES) for side in (0, 2))
        end, new_end = min(hunk[-1][1] + CONTEXT_LINES, len(old)), min(hunk[-1][3] + CONTEXT_LINES, len(new))
        text += f"@@ -{top + begin},{end - begin} +{top + new_begin},{new_end - new_begin} @@\n"
        at = begin
        for first, last, new_first, new_last in hunk:
            text += _marked(" ", old[at:first]) + _marked("-", old[first:last]) + _marked("+", new[new_first:new_last])
            at = last
        text += _marked(" ", old[at:end])
    return text if len(text.encode(errors="replace")) <= MAX_DIFF_BYTES else ""


def _grouped(ranges: Sequence[Range]) -> list[list[Range]]:
    """The ranges of each hunk: those whose context would touch are in one."""
    hunks: list[list[Range]] = []
    for each in ranges:
        if hunks and each[0] - hunks[-1][-1][1] <= 2 * CONTEXT_LINES:
            hunks[-1].append(each)
        else:
            hunks.append([each])
    return hunks


def _marked(mark: str, lines: Sequence[str]) -> str:
    return "".join(f"{mark}{plain(line)}\n" for line in lines)


def plain(line: str) -> str:
    """The line without its line end."""
    return line.rstrip("\r\n")


@dataclass(frozen=True, slots=True)
class History:
    """Events of all documents, the oldest first.

    The newest event is followed twice: since its first edit (`_whole`), and since its last pause (`_recent`);
    `_head` is what it was at that pause.
    """

    _finished: tuple[Event, ...] = ()
    _whole: Event | None = None
    _head: Event | None = None
    _recent: Event | None = None
    edited_at: float = 0.0  # seconds, by the clock of `edited`

    def edited(
        self, path: str, before: Sequence[str], after: Sequence[str], change: LineChange, now: float, *, accepted: bool = False
    ) -> History:
        """The history after an edit that turned `before` into `after`; an accepted one is an event by itself."""
        known, recent = self._whole, self._recent
        alone = accepted or known is None or known.accepted
        whole = None if alone or known is None else _grown(known, path, before, after, change)
        if whole is None or recent is None:
            start = _begun(path, before, after, change, accepted=accepted)
            return History(self._finished_with_newest, start, None, start, now)
        paused = now - self.edited_at >= PAUSE_S
        grown = None if paused else _grown(recent, path, before, after, change)
        if grown is None:
            return History(self._finished, whole, known, _begun(path, before, after, change, accepted=False), now)
        return replace(self, _whole=whole, _recent=grown, edited_at=now)

    def closes(self, now: float, path: str = "", line: int | None = None) -> bool:
        """Whether the newest event is over: after a pause, or if the cursor is now at a `line` far from it."""
        if self._whole is None:
            return False
        far = line is not None and _distance(self._whole, path, line, line) > NEAR_LINES
        return far or now - self.edited_at >= PAUSE_S

    @property
    def newest(self) -> Event | None:
        """The newest event since its last pause, with what was typed last; None without one."""
        return self._recent

    @property
    def events(self) -> tuple[Event, ...]:
        """All events, the newest included, as a prompt that is laid at rest shows them: at most MAX_SHOWN."""
        newest = (self._head, self._recent) if self._head is not None else (self._whole,)
        shown = (event for event in (*self._finished, *newest) if event is not None and event.is_shown)
        return tuple(shown)[-MAX_SHOWN:]

    @property
    def _finished_with_newest(self) -> tuple[Event, ...]:
        newest = (self._whole,) if self._whole is not None and self._whole.is_shown else ()
        return (*self._finished, *newest)[-MAX_SHOWN:]


def _distance(event: Event, path: str, first: int, last: int) -> int:
    """How far the lines [first, last) are from the event; more than NEAR_LINES in another document."""
    if path != event.path:
        return NEAR_LINES + 1
    event_end = event.first + max(1, len(event.new)) - 1
    return max(0, first - event_end, event.first - max(first, last - 1))


def _begun(path: str, before: Sequence[str], after: Sequence[str], change: LineChange, *, accepted: bool) -> Event:
    first, removed, added = change
    old, new = tuple(before[first : first + removed]), tuple(after[first : first + added])
    return _placed(Event(path, first, old, new, accepted=accepted), after)


def _grown(event: Event, path: str, before: Sequence[str], after: Sequence[str], change: LineChange) -> Event | None:
    """The event with the change; None if they are too far from each other."""
    first, removed, added = change
    if _distance(event, path, first, first + removed) > NEAR_LINES:
        return None
    end = event.first + len(event.new)
    top, bottom = min(event.first, first), max(end, first + removed)
    old = (*before[top : event.first], *event.old, *before[end:bottom])
    new = tuple(after[top : bottom + added - removed])
    return _placed(Event(path, top, old, new), after)


def _placed(event: Event, after: Sequence[str]) -> Event:
    """The event without the lines that it leaves as they were, and with those around it."""
    old, new, first = event.old, event.new, event.first
    head = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    old, new, first = old[head:], new[head:], first + head
    most = min(len(old), len(new))
    tail = next((i for i in range(most) if old[-1 - i] != new[-1 - i]), most)
    old, new = old[: len(old) - tail], new[: len(new) - tail]
    end = first + len(new)
    above, below = after[max(0, first - CONTEXT_LINES) : first], after[end : end + CONTEXT_LINES]
    return replace(event, first=first, old=old, new=new, above=tuple(above), below=tuple(below))
