"""Finds where a completion ends by its text.

It ends at the newline, at the dedent of a block, before a stop text, or where it goes on as the suffix does.
"""

from __future__ import annotations

import re

from inference.text.rejoining import Suffix, begun
from protocol.messages import FinishReason, StopRule

TAB_COLUMNS = 4

_NEWLINE = re.compile(r"[\r\n]")
_CLOSERS = re.compile(r"[)\]}]*")
_NONBLANK_LINE = re.compile(r"[\r\n]([^\S\r\n]*)(?=\S)")


class Stops:
    """Finds the end of one completion while its text grows."""

    def __init__(self, rule: StopRule, texts: tuple[str, ...] = (), suffix: str = "") -> None:
        """`texts` are not empty; the completion ends before the first of them, and where `suffix` begins."""
        self._rule = rule
        self._suffix = Suffix(suffix)
        self._texts = texts + self._suffix.stop_texts
        self._resume_at = 0
        self._searched = 0

    def find(self, text: str) -> int | None:
        """The end of the completion `text`, which begins with that of the last call; None if it may continue."""
        ruled, self._resume_at = find_stop(text, self._rule, self._resume_at)
        found = [text.find(stop, max(0, self._searched - len(stop) + 1)) for stop in self._texts]
        self._searched = len(text)
        end = min((place for place in found if place >= 0), default=None)
        if ruled is None or (end is not None and end <= ruled):
            return end
        return self._suffix.end(text[:ruled], by_itself=False)

    def last(self, text: str, reason: FinishReason) -> tuple[str, FinishReason]:
        """A `text` that goes on no more, up to the suffix, and why it ends: `reason` if it has not reached that."""
        end = self._suffix.end(text, by_itself=reason == "eos")
        return (text, reason) if end == len(text) else (text[:end], "stop")

    def settled(self, text: str) -> int:
        """Number of leading characters of a `text` that may continue which no continuation can take away."""
        kept = text.rstrip() if self._rule.indent else text
        return min([self._suffix.settled(kept), *(len(text) - begun(stop, text) for stop in self._texts)])


def find_stop(text: str, rule: StopRule, resume_at: int = 0) -> tuple[int | None, int]:
    """The end of the completion `text`, or None if it may continue, and the `resume_at` for the grown text.

    A single line ends before its newline. A block ends before the first line that is indented by less than
    `rule.indent` columns, and before the white space and blank lines in front of it; a line counts once it has a
    character other than white space. If the rule `closes`, the brackets that this line begins with are kept.
    """
    if rule.indent is None:
        newline = _NEWLINE.search(text, resume_at)
        return (newline.start(), newline.start()) if newline else (None, len(text))
    for line in _NONBLANK_LINE.finditer(text, resume_at):
        if columns(line.group(1)) < rule.indent:
            closed = _CLOSERS.match(text, line.end()).end() if rule.closes else line.end()  # type: ignore[union-attr]
            if closed > line.end():  # more brackets may follow
                return (closed if closed < len(text) else None), line.start()
            return len(text[: line.start()].rstrip()), line.start()
        resume_at = line.end()
    return None, resume_at


def columns(white_space: str) -> int:
    """Width of white space in columns; a tab counts up to the next multiple of TAB_COLUMNS."""
    count = 0
    for character in white_space:
        count = count + TAB_COLUMNS - count % TAB_COLUMNS if character == "\t" else count + 1
    return count
