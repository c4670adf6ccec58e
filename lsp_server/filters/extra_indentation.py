"""The filter that removes indentation that the lines above do not call for."""

from __future__ import annotations

from lsp_server.editing.languages import opens_block
from lsp_server.filters.cursor_context import CursorContext, Insertion
from lsp_server.filters.indentation import indentation, leading_space


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
