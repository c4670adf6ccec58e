"""Finds where a completion ends by its text.

It ends at the newline, at the dedent of a block, before a stop text, or where it goes on as the suffix does.
"""

from __future__ import annotations

import re

from protocol.messages import StopRule

TAB_COLUMNS = 4
SAYS_ENOUGH = 3
"""Letters, digits and underscores in the lines below the cursor's, before a text that repeats them has reached them."""
MOST_SUFFIX_CHARS = 256
"""A longer line of the suffix is recognized by its beginning."""

_NEWLINE = re.compile(r"[\r\n]")
_CLOSERS = re.compile(r"[)\]}]*")
_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|$)")
_WORD_CHARACTER = re.compile(r"\w")
_NONBLANK_LINE = re.compile(r"[\r\n]([^\S\r\n]*)(?=\S)")


class Stops:
    """Finds the end of one completion while its text grows."""

    def __init__(self, rule: StopRule, texts: tuple[str, ...] = (), suffix: str = "") -> None:
        """`texts` are not empty; the completion ends before the first of them, and before a repetition of `suffix`."""
        self._rule = rule
        self._suffix_lines = first_lines(suffix)
        self._texts = texts + _repetitions(self._suffix_lines)
        self._resume_at = 0
        self._searched = 0

    def find(self, text: str) -> int | None:
        """The end of the completion `text`, which begins with that of the last call; None if it may continue."""
        end, self._resume_at = find_stop(text, self._rule, self._resume_at)
        ends = [text.find(stop, max(0, self._searched - len(stop) + 1)) for stop in self._texts]
        self._searched = len(text)
        return min((place for place in (*ends, -1 if end is None else end) if place >= 0), default=None)

    def last(self, text: str) -> int:
        """The end of a `text` without a stop that goes on no more: before the suffix, if the text ends with it."""
        repeats = bool(self._suffix_lines) and text.endswith(self._suffix_lines)
        return len(text) - len(self._suffix_lines) if repeats else len(text)

    def settled(self, text: str) -> int:
        """Number of leading characters of a `text` that may continue which no continuation can take away."""
        length = len(text.rstrip()) if self._rule.indent else len(text)
        return min([length, *(len(text) - _begun(stop, text) for stop in self._texts)])


def first_lines(suffix: str) -> str:
    """The rest of the cursor's line; if it has no word character, with the lines below it that say enough.

    Without the end of the last line; empty if there is nothing of the kind. A completion closes brackets and quotes of
    its own, so these alone do not show that it has reached the suffix.
    """
    said = 0
    for number, line in enumerate(_LINE.finditer(suffix)):
        said += len(_WORD_CHARACTER.findall(line.group(1)))
        if said >= (SAYS_ENOUGH if number else 1):
            return suffix[: line.end(1)]
    return ""


def _repetitions(lines: str) -> tuple[str, ...]:
    """The stop texts of a completion that reaches these lines: a line must end where the suffix's does."""
    if len(lines) > MOST_SUFFIX_CHARS:
        return (lines[:MOST_SUFFIX_CHARS],)
    return (lines + "\n", lines + "\r") if lines else ()


def _begun(stop: str, text: str) -> int:
    """Number of characters at the end of `text` that a stop text may begin with."""
    return next((count for count in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:count])), 0)


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
