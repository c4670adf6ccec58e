"""The filter that takes back indentation which the lines above do not ask for."""

from __future__ import annotations

from dataclasses import replace

from lsp_server.languages import opens_block
from lsp_server.manners.indentation import indentation, leading_space
from lsp_server.manners.place import Insertion, Place


def drop_extra_indentation(insertion: Insertion, place: Place) -> Insertion:
    """On a blank line, a suggestion is no deeper than the line above it, or one step deeper where that opens a block.

    A suggestion that begins deeper could not be accepted in editors whose Tab indents there. All of its lines move.
    """
    space = leading_space(insertion.text)
    if not space or "\n" in space or place.before.strip():
        return insertion
    deepest = max(_depth_asked_for(place), indentation(place.before))
    extra = indentation(place.before + space) - deepest
    if extra <= 0:
        return insertion
    return replace(insertion, text="\n".join(_outdented(line, extra) for line in insertion.text.split("\n")))


def _depth_asked_for(place: Place) -> int:
    """By the nearest line above that is not blank."""
    line = next((line for line in reversed(place.above) if line.strip()), "")
    return indentation(line) + (indentation(place.indent_unit) if opens_block(line, place.language_id) else 0)


def _outdented(line: str, columns: int) -> str:
    """The line without so many columns of its indentation, as far as it has them."""
    text = line.lstrip()
    space = leading_space(line)
    while space and indentation(line) - indentation(space) < columns:
        space = space[:-1]
    return space + text
