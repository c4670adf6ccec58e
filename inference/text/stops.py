"""Finds where a completion ends by its text: at the newline, or at the dedent of a block."""

from __future__ import annotations

import re

from protocol.messages import StopRule

TAB_COLUMNS = 4

_NEWLINE = re.compile(r"[\r\n]")
_CLOSERS = re.compile(r"[)\]}]*")
_NONBLANK_LINE = re.compile(r"[\r\n]([^\S\r\n]*)(?=\S)")


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
