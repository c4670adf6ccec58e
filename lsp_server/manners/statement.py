"""The statement that the cursor stands in, and whether a text would leave its brackets and strings in balance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lsp_server.manners.balance import CLOSERS, Faults, faults
from lsp_server.manners.indentation import indentation
from lsp_server.manners.place import Place


@dataclass(frozen=True, slots=True)
class Statement:
    """The outermost statement around the cursor that the place holds from end to end, and what is amiss in it now.

    A longer one would not do: what closes its brackets is out of sight, so that each of them would seem to want a
    closer, and any closer too many would pass for it.
    """

    head: str  # up to the cursor
    after: str  # the rest of the cursor's line
    below: str
    language_id: str
    now: Faults

    @classmethod
    def of(cls, place: Place) -> Statement:
        """The one at a place; all that is in sight where no statement is there from end to end."""
        above, lines_below = next(_whole(place), (place.above, place.below))
        head = "\n".join((*above, place.before))
        below = "\n".join(("", *lines_below))
        return cls(head, place.after, below, place.language_id, faults(head + place.after + below, place.language_id))

    @property
    def wants_closer(self) -> bool:
        """Whether a bracket is open that nothing closes."""
        return any(self.balanced_by("\n" + closer) for closer in CLOSERS)

    def balanced_by(self, text: str, replaced: int = 0) -> bool:
        """Whether `text`, in place of the `replaced` code points behind the cursor, adds no fault.

        At the end of a line a string may stay open: that is for the user to go on with.
        """
        then = faults(self.head + text + self.after[replaced:] + self.below, self.language_id)
        strings_close = then.strings <= self.now.strings or not self.after.strip()
        return then.closers <= self.now.closers and strings_close


def _whole(place: Place) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    """The lines above and below of the statements around the cursor that are in sight, the outermost first."""
    for depth in sorted({0, *(indentation(line) for line in (*place.above, place.before) if line.strip())}):
        above, below = _above(place, depth), _below(place, depth)
        if above is not None and below is not None:
            yield above, below


def _above(place: Place, depth: int) -> Sequence[str] | None:
    """The lines above the cursor's that belong to its statement at a depth; None if it begins out of sight."""
    if _begins_statement(place.before, depth):
        return ()
    for index in range(len(place.above) - 1, -1, -1):
        if _begins_statement(place.above[index], depth):
            return place.above[index:]
    return place.above if place.from_start else None


def _below(place: Place, depth: int) -> Sequence[str] | None:
    """Those below it; None if the statement ends out of sight. A closer further out is that of another statement."""
    for index, line in enumerate(place.below):
        if _begins_statement(line, depth) or (line.strip() and indentation(line) < depth):
            return place.below[:index]
    return place.below if place.to_end else None


def _begins_statement(line: str, depth: int) -> bool:
    """Whether a statement begins with the line, at the depth or further out."""
    code = line.lstrip()
    return bool(code) and code[0] not in CLOSERS and indentation(line) <= depth
