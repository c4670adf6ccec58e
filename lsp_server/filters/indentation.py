"""The filters of white space: indentation as the lines above ask for it, nothing trailing, the document's line ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lsp_server.editing.indentation import TAB_COLUMNS, indentation, leading_space
from lsp_server.editing.languages import language, opens_block
from lsp_server.filters.cursor_context import CursorContext, Insertion

_COMMENTS = ("#", "//", "/*")
_STUCK_TO = frozenset("_\"'`([{")  # a space may precede these
_BODY_OPENERS = (":", "{", "=>")  # after which the body is one step deeper; after `(` two steps are common


def drop_extra_indentation(insertion: Insertion, context: CursorContext) -> Insertion:
    """On a blank line, a suggestion is no deeper than the line above it, or one step deeper where that opens a block.

    A suggestion that begins deeper could not be accepted in editors whose Tab indents there. All of its lines move.
    """
    space = leading_space(insertion.text)
    if space in ("", insertion.text) or "\n" in space or context.before.strip():
        return insertion
    depth = indentation(context.before + space)
    asked_for = max(_depth_asked_for(context), indentation(context.before))
    if depth <= asked_for:
        return insertion
    first, *more = insertion.text.split("\n")
    outward = _how_far_out(insertion.text, depth, asked_for, context)
    lines = (_moved(first, asked_for - depth), *(_moved(line, -outward) for line in more))
    return insertion.with_text("\n".join(lines))


def _how_far_out(text: str, depth: int, asked_for: int, context: CursorContext) -> int:
    """By how many columns the later lines move out when the first moves from `depth` to `asked_for`.

    If one of them is less deep than the first, the model has repeated the indentation of the cursor's line. Then
    they are right as they are if the next line is as deep as the first line calls for; otherwise they count
    from the start of the line, as the first does.
    """
    first, *more = (line for line in text.split("\n") if line.strip())
    if all(indentation(line) >= depth for line in more):
        return depth - asked_for
    if (indentation(more[0]) > asked_for) == opens_block(first, context.language_id):
        return 0
    return indentation(first) - asked_for


def _depth_asked_for(context: CursorContext) -> int:
    """The depth in columns that the nearest line above that is not blank calls for."""
    line = next((line for line in reversed(context.lines_above) if line.strip()), "")
    return indentation(line) + (indentation(context.indent_unit) if opens_block(line, context.language_id) else 0)


def _moved(line: str, columns: int) -> str:
    """The line moved in by `columns`, or out by as many as it has; a blank line does not change."""
    if columns >= 0:
        return " " * columns + line if line.strip() else line
    space = leading_space(line)
    while space and indentation(line) - indentation(space) < -columns:
        space = space[:-1]
    return space + line.lstrip()


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


class _Level(NamedTuple):
    depth: int
    begin: int | None = None  # where the suggestion's line that opened it begins; None for lines of the document


def cut_broken_indentation(insertion: Insertion, context: CursorContext) -> Insertion:
    """Cut at the line that opened a level if a later line dedents from it to a level that is not open.

    An `else:` at column 20 below a body at 24 below an `if` at 16 belongs to nothing: the body was wrong already.
    Applies only to languages whose blocks are made by indentation.
    """
    text = insertion.text
    if "\n" not in text or language(context.language_id).opening_line is None:
        return insertion
    levels = _levels_above(context, indentation(context.before + text.split("\n", 1)[0]))
    outermost = levels[0].depth
    for begin, depth in _statement_lines(text, context):
        left: _Level | None = None
        while levels and levels[-1].depth > depth:
            left = levels.pop()
        if levels and levels[-1].depth == depth:
            continue
        if left is not None and depth > outermost:
            return insertion.with_text(text[: begin if left.begin is None else left.begin])
        levels.append(_Level(depth, begin))
    return insertion


def _levels_above(context: CursorContext, depth: int) -> list[_Level]:
    """The levels open at the cursor's line, which has this depth; the outermost first."""
    levels = [_Level(depth)]
    for line in reversed(context.lines_above):
        if line.strip() and (above := indentation(line)) < levels[-1].depth:
            levels.append(_Level(above))
    return levels[::-1]


def _statement_lines(text: str, context: CursorContext) -> Iterator[tuple[int, int]]:
    """For each later line that begins a statement: where its preceding newline is, and its depth in columns.

    Lines inside of brackets and strings, lines after a backslash, and comments may have any indentation.
    """
    head = context.statement.head
    inside = [stretch for stretch in _inside(head + text, context.language_id) if stretch.stop > len(head)]
    begin = text.find("\n")
    while begin >= 0:
        end = text.find("\n", begin + 1)
        line = text[begin + 1 : end if end >= 0 else len(text)]
        goes_on = (head + text[:begin]).endswith("\\") or any(len(head) + begin in stretch for stretch in inside)
        if line.strip() and not line.lstrip().startswith("#") and not goes_on:
            yield begin, indentation(line)
        begin = end


def _inside(text: str, language_id: str) -> list[range]:
    """The ranges of brackets, and of strings of several lines."""
    stretches: list[range] = []
    opened: list[int] = []
    for token in language(language_id).tokens.finditer(text):
        said = token.group()
        if said in "([{":
            opened.append(token.start())
        elif said in ")]}":
            start = opened.pop() if opened else token.start()
            stretches.append(range(start, token.end()))
        elif "\n" in said:
            stretches.append(range(token.start(), token.end()))
    return [*stretches, *(range(start, len(text)) for start in opened)]


def drop_trailing_space(insertion: Insertion, context: CursorContext) -> Insertion:
    """Drop white space and blank lines at the end, but keep the space before a following word."""
    text = insertion.text.rstrip()
    behind = context.after[insertion.replaced :][:1]
    keeps_words_apart = behind.isalnum() or behind in _STUCK_TO
    if text and behind and keeps_words_apart and insertion.text[len(text) :].startswith(" "):
        text += " "
    return insertion.with_text(text)


def use_line_ends(insertion: Insertion, context: CursorContext) -> Insertion:
    """Replace \\n by the document's own line ends."""
    return insertion.with_text(insertion.text.replace("\n", context.line_end))
