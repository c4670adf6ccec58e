"""From the text that the core answered to what is shown: an ordered tuple of small pure filters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lsp_server.brackets import CLOSER_OF, QUOTES

_CLOSERS = frozenset(")]}" + QUOTES)


@dataclass(frozen=True, slots=True)
class Place:
    """What the filters may know of the cursor's surroundings."""

    after: str  # the rest of the cursor's line, without its end
    line_end: str = "\n"  # of the document


@dataclass(frozen=True, slots=True)
class Insertion:
    """What to put at the cursor, in place of the `replaced` code points behind it; an empty text is nothing."""

    text: str
    replaced: int = 0


def drop_trailing_space(insertion: Insertion, _place: Place) -> Insertion:
    """No white space or blank lines at the end, and nothing at all where there is nothing else."""
    return replace(insertion, text=insertion.text.rstrip())


def close_once(insertion: Insertion, place: Place) -> Insertion:
    """Closing brackets and quotes that stand behind the cursor are not said again.

    Only what the text closes without having opened it counts: `bar()` before `)` stays whole. Where the text
    goes on after such a closer, it replaces those behind the cursor; otherwise it loses its own.
    """
    text = insertion.text
    closed = _closed_behind(text, place.after)
    kept = len(text)
    for index in reversed(closed):
        if index != kept - 1:
            return replace(insertion, replaced=len(closed))
        kept = index
    return replace(insertion, text=text[:kept])


def use_line_ends(insertion: Insertion, place: Place) -> Insertion:
    """The document's own line ends."""
    return replace(insertion, text=insertion.text.replace("\n", place.line_end))


FILTERS: tuple[Callable[[Insertion, Place], Insertion], ...] = (
    drop_trailing_space,
    close_once,
    drop_trailing_space,
    use_line_ends,
)


def postprocess(text: str, place: Place) -> Insertion:
    """What to show of the core's `text`, whose lines end in \\n."""
    insertion = Insertion(text)
    for apply in FILTERS:
        insertion = apply(insertion, place)
    return insertion


def _closed_behind(text: str, after: str) -> list[int]:
    """Where `text` closes, in their order, the closers that `after` begins with."""
    closed: list[int] = []
    wanted: list[str] = []  # closers of what the text itself opened, innermost last
    for index, character in enumerate(text):
        behind = after[len(closed)] if len(closed) < len(after) else ""
        if behind not in _CLOSERS:
            break
        if wanted and character == wanted[-1]:
            wanted.pop()
        elif wanted and wanted[-1] in QUOTES:
            continue  # inside a string
        elif not wanted and character == behind:
            closed.append(index)
        elif not wanted and behind in QUOTES:
            continue  # still inside the string that the cursor stands in
        elif character in CLOSER_OF:
            wanted.append(CLOSER_OF[character])
        elif character in QUOTES:
            wanted.append(character)
    return closed
