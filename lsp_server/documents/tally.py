"""How often brackets, quotes and lines of blocks stand in a document, above a line and in all, kept while lines change."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Key = str | tuple[str, str | None]
"""A text, or the white space and the kind of a line."""


class Counts(NamedTuple):
    """How often each text and kind of line stands above one line, and in all lines."""

    above: Counter[Key]
    whole: Counter[Key]


@dataclass(slots=True)
class Tally:
    """Counts `texts`, none of which reaches into a second line, and lines that `kinds` matches.

    A line counts by the first group and the name of the last one. It knows the counts above and below a gap of lines, and
    counts the gap itself when it is asked. The gap follows edits and questions, so each costs the lines between it and the
    gap: few, where a user types.
    """

    texts: Sequence[str]
    kinds: str = ""
    _above: Counter[Key] = field(default_factory=Counter)
    _below: Counter[Key] = field(default_factory=Counter)
    _lines_above: int = 0
    _lines_below: int = 0

    def edit(self, lines: Sequence[str], first: int, stop: int) -> None:
        """Take the lines [first, stop) into the gap, before they change."""
        self._move(lines, min(first, self._lines_above), max(stop, len(lines) - self._lines_below))

    def counts(self, lines: Sequence[str], line: int) -> Counts:
        """The counts above `line`, and of all `lines`."""
        self._move(lines, line, line + 1)
        return Counts(self._above.copy(), self._above + self._below + self._counted(lines[line : line + 1]))

    def _move(self, lines: Sequence[str], start: int, stop: int) -> None:
        """Let the gap be [start, stop)."""
        old_start, old_stop = self._lines_above, len(lines) - self._lines_below
        self._above.update(self._counted(lines[old_start:start]))
        self._above.subtract(self._counted(lines[start:old_start]))
        self._below.update(self._counted(lines[stop:old_stop]))
        self._below.subtract(self._counted(lines[old_stop:stop]))
        self._lines_above, self._lines_below = start, len(lines) - stop

    def _counted(self, lines: Sequence[str]) -> Counter[Key]:
        text = "".join(lines)
        counted: Counter[Key] = Counter({each: text.count(each) for each in self.texts})
        if self.kinds:
            found = filter(None, map(re.compile(self.kinds).match, lines))
            counted.update((each.group(1), each.lastgroup) for each in found)
        return counted
