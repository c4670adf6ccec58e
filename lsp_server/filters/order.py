"""The order of the filters: content filters run once per completion, fit filters wherever its rest is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lsp_server.filters.block import end_with_block, end_with_whole_statement
from lsp_server.filters.closers import keep_balance, keep_closers
from lsp_server.filters.cursor_context import CursorContext, Insertion
from lsp_server.filters.indentation import (
    cut_broken_indentation,
    drop_extra_indentation,
    drop_trailing_space,
    use_line_ends,
    use_own_indentation,
)
from lsp_server.filters.repeats import cut_at_next_lines, cut_repetition, drop_previous_lines, drop_rest_of_line

Filter = Callable[[Insertion, CursorContext], Insertion]

CONTENT: tuple[Filter, ...] = (
    end_with_block,
    cut_repetition,
    drop_extra_indentation,
    use_own_indentation,
    cut_broken_indentation,
    end_with_whole_statement,
    drop_rest_of_line,
    cut_at_next_lines,
)

FIT: tuple[Filter, ...] = (
    drop_trailing_space,
    keep_balance,
    drop_rest_of_line,  # again: a text cut before a closer may now repeat the rest of the line
    cut_at_next_lines,
    drop_previous_lines,
    keep_closers,  # after all that cut the text
    drop_trailing_space,
    use_line_ends,
)


def worth_showing(text: str, context: CursorContext) -> str:
    """The part of the core's `text`, whose lines end in \\n, that is worth showing; empty if none is.

    The suggestion is followed while the user types it, and this decision does not change on the way.
    """
    return _apply(CONTENT, text, context).text


def fitted(text: str, context: CursorContext) -> Insertion:
    """The insertion to show at this place for a suggestion, or for its rest; an empty text suggests nothing."""
    return _apply(FIT, text, context)


def _apply(filters: Sequence[Filter], text: str, context: CursorContext) -> Insertion:
    insertion = Insertion(text)
    for apply in filters:
        insertion = apply(insertion, context)
    return insertion
