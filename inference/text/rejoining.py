"""Recognizes where a completion goes on as the text behind the cursor does: there it has filled the gap.

A model that does not see where the suffix begins writes it once more. Brackets and quotes alone do not show that it has
reached the suffix, since a completion closes its own.
"""

from __future__ import annotations

import re
from itertools import takewhile

SAYS_ENOUGH = 3
"""So many letters, digits and underscores are no coincidence."""
MOST_CHARS = 256
"""A longer line of the suffix is recognized by its beginning."""

_LINE = re.compile(r"([^\r\n]*)(?:\r\n|\r|\n|$)")
_WORD_CHARACTER = re.compile(r"\w")


class Suffix:
    """The text behind the cursor, as completions repeat it.

    Attributes:
        stop_texts: what ends a completion that has reached the suffix whole: its first lines, which end where the
            completion's do.
    """

    def __init__(self, suffix: str) -> None:
        self._lines = first_lines(suffix)
        self._rest = "" if "\n" in self._lines or "\r" in self._lines else self._lines  # of the cursor's line
        said = [match.end() for match in _WORD_CHARACTER.finditer(self._rest)]
        self._beginning = self._rest[: said[SAYS_ENOUGH - 1]] if len(said) >= SAYS_ENOUGH else ""
        self.stop_texts: tuple[str, ...] = ()
        if len(self._lines) > MOST_CHARS:
            self.stop_texts = (self._lines[:MOST_CHARS],)
        elif self._lines:
            self.stop_texts = (self._lines + "\n", self._lines + "\r")

    def end(self, text: str, *, by_itself: bool) -> int:
        """The end of a `text` that goes on no more: before the suffix, if it ends with its first lines.

        Of a text that a newline or a limit ends, not the model (`by_itself`), also before the longest beginning of the
        cursor's line that it has, if this says enough: its own line goes on in another way.
        """
        if self._lines and text.endswith(self._lines):
            return len(text) - len(self._lines)
        if by_itself or not self._beginning:
            return len(text)
        places = [match.start() for match in re.finditer(re.escape(self._beginning), text)]
        return max(places, key=lambda place: self._in_common(text, place), default=len(text))

    def settled(self, text: str) -> int:
        """Number of leading characters that `end` cannot take away, however `text` goes on."""
        if not self._beginning:
            return len(text)
        place = text.find(self._beginning)
        return place if place >= 0 else len(text) - begun(self._beginning, text)

    def _in_common(self, text: str, place: int) -> int:
        """Number of the rest of line's leading characters that stand at `place`."""
        pairs = zip(text[place : place + len(self._rest)], self._rest, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def first_lines(suffix: str) -> str:
    """The rest of the cursor's line; if it has no word character, with the lines below it that say enough.

    Without the end of the last line; empty if there is nothing of the kind.
    """
    said = 0
    for number, line in enumerate(_LINE.finditer(suffix)):
        said += len(_WORD_CHARACTER.findall(line.group(1)))
        if said >= (SAYS_ENOUGH if number else 1):
            return suffix[: line.end(1)]
    return ""


def begun(stop: str, text: str) -> int:
    """Number of characters at the end of `text` that `stop` may begin with."""
    return next((count for count in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:count])), 0)
