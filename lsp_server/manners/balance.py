"""Brackets and strings of a text: those that close what was never opened, and those that never end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lsp_server.languages import language
from lsp_server.manners.place import Place

_OPENER_OF = {")": "(", "]": "[", "}": "{"}
_QUOTES = "\"'`"


class Faults(NamedTuple):
    """What is out of balance."""

    closers: int  # that close nothing
    strings: int  # that never end


def faults(text: str, language_id: str) -> Faults:
    """The faults of `text`; a closer reaches past openers of other kinds to its own."""
    opened: list[str] = []
    closers = strings = 0
    for match in language(language_id).tokens.finditer(text):
        token = match.group()
        if token in _OPENER_OF:
            if not _close(opened, _OPENER_OF[token]):
                closers += 1
        elif token in "([{":
            opened.append(token)
        elif token[0] in _QUOTES and (len(token) == 1 or token[-1] != token[0]):
            strings += 1
    return Faults(closers, strings)


def closes_unopened(text: str, language_id: str) -> int | None:
    """Where `text` first closes a bracket that it has not opened, or None."""
    opened: list[str] = []
    for match in language(language_id).tokens.finditer(text):
        token = match.group()
        if token in _OPENER_OF and not _close(opened, _OPENER_OF[token]):
            return match.start()
        if token in "([{":
            opened.append(token)
    return None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The top-level statement that the cursor stands in, and how it is balanced without a suggestion."""

    head: str
    after: str
    below: str
    language_id: str
    now: Faults

    @classmethod
    def of(cls, place: Place) -> Surroundings:
        """Those of a place, as far as its lines reach."""
        head = "\n".join((*_back_to_top(place), place.before))
        below = "\n".join(("", *_down_to_top(place.below)))
        return cls(head, place.after, below, place.language_id, faults(head + place.after + below, place.language_id))

    @property
    def wants_closer(self) -> bool:
        """Whether a bracket is open that nothing closes."""
        return any(self.balanced_by("\n" + closer) for closer in _OPENER_OF)

    def balanced_by(self, text: str, replaced: int = 0) -> bool:
        """Whether `text`, in place of the `replaced` code points behind the cursor, adds no fault.

        At the end of a line a string may stay open: that is for the user to go on with.
        """
        then = faults(self.head + text + self.after[replaced:] + self.below, self.language_id)
        strings_close = then.strings <= self.now.strings or not self.after.strip()
        return then.closers <= self.now.closers and strings_close


def _close(opened: list[str], opener: str) -> bool:
    """Take back the last `opener`, and what was opened since; False if there is none."""
    if opener not in opened:
        return False
    while opened.pop() != opener:
        pass
    return True


def _back_to_top(place: Place) -> Sequence[str]:
    """The lines above the cursor's from where its top-level statement begins."""
    if _begins_statement(place.before):
        return ()
    for index in range(len(place.above) - 1, -1, -1):
        if _begins_statement(place.above[index]):
            return place.above[index:]
    return place.above


def _down_to_top(below: Iterable[str]) -> list[str]:
    """The lines below the cursor's up to the next top-level statement."""
    lines = []
    for line in below:
        if _begins_statement(line):
            break
        lines.append(line)
    return lines


def _begins_statement(line: str) -> bool:
    return bool(line) and not line[0].isspace() and line[0] not in ")]}"
