"""The statement around the cursor, and whether an insertion leaves its brackets and strings in balance."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from lsp_server.editing.indentation import indentation
from lsp_server.filters.balance import CLOSERS, Balance

if TYPE_CHECKING:
    from lsp_server.filters.cursor_context import CursorContext

_BLANK = sys.maxsize - 1  # deeper than any line
_MOST_REMEMBERED = 4096  # lines
_LONGEST_REMEMBERED = 500  # code points of a line; a longer one is not worth its memory


@dataclass(frozen=True)
class Statement:
    """The outermost statement around the cursor that the place holds from end to end, and its balance.

    A longer statement has its closers out of sight: each of its brackets would seem to lack one, and any surplus
    closer would be taken for it.
    """

    head: str  # up to the cursor
    after: str  # the rest of the cursor's line
    below: str
    language_id: str
    earlier: Balance | None = field(default=None, compare=False)  # of this statement some edits ago, or of any other

    @classmethod
    def around(cls, context: CursorContext) -> Statement:
        """The statement at a place; all lines of the place if it holds no whole statement."""
        above, below = _whole(context) or (context.lines_above, context.lines_below)
        *ended, last = ("\n", *below) if below else ("",)
        below_text = _joined(ended) + last.rstrip("\r\n")
        return cls(_joined(above) + context.before, context.after, below_text, context.language_id, context.earlier)

    @cached_property
    def balance(self) -> Balance:
        """The balance of the statement, with and without an insertion at the cursor."""
        return Balance(self.head, self.after + self.below, self.language_id, self.earlier)

    @property
    def wants_closer(self) -> bool:
        """Whether a bracket is open that nothing closes."""
        return self.balance.now.openers > 0 and any(self.balanced_by("\n" + closer) for closer in CLOSERS)

    def balanced_by(self, text: str, replaced: int = 0) -> bool:
        """Whether `text`, in place of the `replaced` code points behind the cursor, adds no fault.

        At the end of a line a string may stay open, for the user to continue.
        """
        now, then = self.balance.now, self.balance.with_text(text, replaced)
        strings_close = then.strings <= now.strings or not self.after.strip()
        return then.closers <= now.closers and strings_close


def _whole(context: CursorContext) -> tuple[Sequence[str], Sequence[str]] | None:
    """The lines above and below of the outermost statement around the cursor that is in sight; None if none is.

    A statement that begins or ends outside of the place does not count; statements inside of it may.
    """
    depths_above, begin_above = _measured((*context.lines_above, context.before))
    depths_below, begin_below = _measured(context.lines_below)
    in_sight_above = 0 if context.from_start else min(begin_above)
    in_sight_below = 0 if context.to_end else min((*begin_below, min(depths_below, default=_BLANK) + 1))
    in_sight = max(in_sight_above, in_sight_below)  # statements at this depth, and at those further in
    depth = min((depth for depth in {0, *depths_above} if in_sight <= depth < _BLANK), default=None)
    if depth is None:
        return None
    first = next((index for index in range(len(begin_above) - 1, 0, -1) if begin_above[index] <= depth), 0)
    ends = (index for index, begins in enumerate(begin_below) if begins <= depth or depths_below[index] < depth)
    return context.lines_above[first:], context.lines_below[: next(ends, None)]


def _joined(lines: Sequence[str]) -> str:
    """The lines as one text, with \\n for all line ends."""
    text = "".join(lines)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _measured(lines: Sequence[str]) -> tuple[Sequence[int], Sequence[int]]:
    """The indentation of each line, and the depth of the statement that begins with it; _BLANK where there is none."""
    depths, begin = zip(*map(_measures.__getitem__, lines), strict=True) if lines else ((), ())
    return depths, begin


class _Measures(dict[str, tuple[int, int]]):
    """Indentation and depth by line, remembered: few lines change with a keystroke."""

    def __missing__(self, line: str) -> tuple[int, int]:
        """Measure a line; one that begins with a closer belongs to the statement that it closes or to one around it."""
        code = line.lstrip()
        depth = indentation(line) if code else _BLANK
        measure = depth, _BLANK if code[:1] in CLOSERS else depth
        if len(line) <= _LONGEST_REMEMBERED:
            if len(self) == _MOST_REMEMBERED:
                self.clear()
            self[line] = measure
        return measure


_measures = _Measures()
