"""The filter that takes back indentation which the lines above do not ask for."""

from __future__ import annotations

from lsp_server.editing.languages import opens_block
from lsp_server.filters.cursor_place import Insertion, Place
from lsp_server.filters.indentation import indentation, leading_space


def drop_extra_indentation(insertion: Insertion, place: Place) -> Insertion:
    """On a blank line, a suggestion is no deeper than the line above it, or one step deeper where that opens a block.

    A suggestion that begins deeper could not be accepted in editors whose Tab indents there. All of its lines move.
    """
    space = leading_space(insertion.text)
    if space in ("", insertion.text) or "\n" in space or place.before.strip():
        return insertion
    depth = indentation(place.before + space)
    asked_for = max(_depth_asked_for(place), indentation(place.before))
    if depth <= asked_for:
        return insertion
    first, *more = insertion.text.split("\n")
    outward = _how_far_out(insertion.text, depth, asked_for, place)
    lines = (_moved(first, asked_for - depth), *(_moved(line, -outward) for line in more))
    return insertion.with_text("\n".join(lines))


def _how_far_out(text: str, depth: int, asked_for: int, place: Place) -> int:
    """The columns that the later lines move with the first, which stands at `depth` and goes to `asked_for`.

    Where one of them is less deep than the first, the model has said the indentation of the cursor's line again:
    then they stand right as they are, if the next one is as deep as the first line wants it, and else they count
    from the start of the line, as the first does.
    """
    first, *more = (line for line in text.split("\n") if line.strip())
    if all(indentation(line) >= depth for line in more):
        return depth - asked_for
    if (indentation(more[0]) > asked_for) == opens_block(first, place.language_id):
        return 0
    return indentation(first) - asked_for


def _depth_asked_for(place: Place) -> int:
    """By the nearest line above that is not blank."""
    line = next((line for line in reversed(place.lines_above) if line.strip()), "")
    return indentation(line) + (indentation(place.indent_unit) if opens_block(line, place.language_id) else 0)


def _moved(line: str, columns: int) -> str:
    """The line so many columns further in, or further out as far as it has them; a blank one stays as it is."""
    if columns >= 0:
        return " " * columns + line if line.strip() else line
    space = leading_space(line)
    while space and indentation(line) - indentation(space) < -columns:
        space = space[:-1]
    return space + line.lstrip()
