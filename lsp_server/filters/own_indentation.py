"""The filter that converts a suggestion's indentation to the document's own unit."""

from __future__ import annotations

from lsp_server.filters.cursor_place import Insertion, Place
from lsp_server.filters.indentation import TAB_COLUMNS, indentation, leading_space

_COMMENTS = ("#", "//", "/*")
_BODY_OPENERS = (":", "{", "=>")  # after which the body is one step deeper; after `(` two steps are common


def use_own_indentation(insertion: Insertion, place: Place) -> Insertion:
    """Use the document's tabs or step of spaces instead of the model's, and drop surplus space at the start."""
    first, *more = insertion.text.split("\n")
    lines = [_first_line(first, place), *(_later_lines(more, place) if more else ())]
    return insertion.with_text("\n".join(lines))


def _first_line(line: str, place: Place) -> str:
    """After white space: whole steps on a blank line, and no second space elsewhere."""
    space = leading_space(line)
    if not space or line.lstrip().startswith(_COMMENTS):
        return line
    if place.before.strip():
        return line.lstrip() if place.before[-1].isspace() else line
    step = indentation(place.indent_unit)
    columns = indentation(place.before)
    return _white_space((indentation(place.before + space) - columns) // step * step, place) + line.lstrip()


def _later_lines(lines: list[str], place: Place) -> list[str]:
    base = indentation(place.before)
    step = indentation(place.indent_unit)
    depths = [indentation(line) - base for line in lines if line.strip()]
    theirs = depths[0] if depths and place.before.rstrip().endswith(_BODY_OPENERS) else step
    if theirs not in (2, 4) or any(depth % theirs for depth in depths):
        theirs = step
    if theirs == step and not any(_is_foreign(line, place) for line in lines):
        return lines
    return [_indented(line, base + (indentation(line) - base) // theirs * step, theirs, place) for line in lines]


def _is_foreign(line: str, place: Place) -> bool:
    """Whether the line is indented by tabs among spaces, or the other way round; other spaces may be alignment."""
    space = leading_space(line)
    if place.indent_unit != "\t":
        return "\t" in space
    return space.startswith("  ") or space.lstrip("\t") == " " * TAB_COLUMNS


def _indented(line: str, columns: int, theirs: int, place: Place) -> str:
    """The line, `columns` deep, plus the alignment: the spaces beyond whole steps of `theirs` columns."""
    if not line.strip():
        return ""
    aligned = (indentation(line) - indentation(place.before)) % theirs
    return _white_space(columns, place) + " " * aligned + line.lstrip()


def _white_space(columns: int, place: Place) -> str:
    if place.indent_unit == "\t":
        return "\t" * (columns // TAB_COLUMNS)
    return " " * columns
