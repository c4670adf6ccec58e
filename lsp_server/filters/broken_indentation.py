"""The filter that cuts off a block whose lines are indented as Python does not allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lsp_server.editing.languages import language
from lsp_server.filters.cursor_context import CursorContext, Insertion
from lsp_server.filters.indentation import indentation


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
