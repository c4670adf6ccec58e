"""The filter that converts a suggestion's indentation to the document's own unit."""

from __future__ import annotations

from lsp_server.filters.cursor_context import CursorContext, Insertion
from lsp_server.filters.indentation import TAB_COLUMNS, indentation, leading_space

_COMMENTS = ("#", "//", "/*")
_BODY_OPENERS = (":", "{", "=>")  # after which the body is one step deeper; after `(` two steps are common


def use_own_indentation(insertion: Insertion, context: CursorContext) -> Insertion:
    """Use the document's tabs or step of spaces instead of the model's, and drop surplus space at the start."""
    first, *more = insertion.text.split("\n")
    lines = [_first_line(first, context), *(_later_lines(more, context) if more else ())]
    return insertion.with_text("\n".join(lines))


def _first_line(line: str, context: CursorContext) -> str:
    """After white space: whole steps on a blank line, and no second space elsewhere."""
    space = leading_space(line)
    if not space or line.lstrip().startswith(_COMMENTS):
        return line
    if context.before.strip():
        return line.lstrip() if context.before[-1].isspace() else line
    step = indentation(context.indent_unit)
    columns = indentation(context.before)
    return _white_space((indentation(context.before + space) - columns) // step * step, context) + line.lstrip()


def _later_lines(lines: list[str], context: CursorContext) -> list[str]:
    base = indentation(context.before)
    step = indentation(context.indent_unit)
    depths = [indentation(line) - base for line in lines if line.strip()]
    theirs = depths[0] if depths and context.before.rstrip().endswith(_BODY_OPENERS) else step
    if theirs not in (2, 4) or any(depth % theirs for depth in depths):
        theirs = step
    if theirs == step and not any(_is_foreign(line, context) for line in lines):
        return lines
    return [_indented(line, base + (indentation(line) - base) // theirs * step, theirs, context) for line in lines]


def _is_foreign(line: str, context: CursorContext) -> bool:
    """Whether the line is indented by tabs among spaces, or the other way round; other spaces may be alignment."""
    space = leading_space(line)
    if context.indent_unit != "\t":
        return "\t" in space
    return space.startswith("  ") or space.lstrip("\t") == " " * TAB_COLUMNS


def _indented(line: str, columns: int, theirs: int, context: CursorContext) -> str:
    """The line, `columns` deep, plus the alignment: the spaces beyond whole steps of `theirs` columns."""
    if not line.strip():
        return ""
    aligned = (indentation(line) - indentation(context.before)) % theirs
    return _white_space(columns, context) + " " * aligned + line.lstrip()


def _white_space(columns: int, context: CursorContext) -> str:
    if context.indent_unit == "\t":
        return "\t" * (columns // TAB_COLUMNS)
    return " " * columns
