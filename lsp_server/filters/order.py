"""The order of the filters: content filters run once per completion, fit filters wherever its rest is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lsp_server.filters.cursor_context import CursorContext, Insertion
from lsp_server.filters.ends import end_loop, end_with_block, end_with_whole_statement
from lsp_server.filters.indentation import (
    drop_doubled_space,
    drop_trailing_space,
    end_before_broken_dedent,
    use_document_steps,
    use_line_ends,
)
from lsp_server.filters.repeats import (
    close_formula,
    close_hidden,
    cut_at_next_lines,
    drop_rest_of_line,
    drop_statement_end,
    drop_surplus_closers,
    drop_surplus_tags,
    leave_closers,
)

Filter = Callable[[Insertion, CursorContext], Insertion]


@dataclass(frozen=True, slots=True)
class Rule:
    """A filter, and what is wrong with a text of which it leaves nothing, as a sentence's end."""

    apply: Filter
    fault: str


_WHITE_SPACE = "is white space alone"

CONTENT: tuple[Rule, ...] = (
    Rule(end_with_block, "leaves the block that the cursor is in"),
    Rule(end_loop, "repeats itself"),
    Rule(drop_doubled_space, _WHITE_SPACE),
    Rule(use_document_steps, _WHITE_SPACE),
    Rule(end_before_broken_dedent, "is indented as no open block is"),
    Rule(end_with_whole_statement, "is the beginning of a statement alone"),
)

FIT: tuple[Rule, ...] = (
    Rule(drop_trailing_space, _WHITE_SPACE),
    Rule(close_hidden, "closes what is closed already"),
    Rule(drop_rest_of_line, "says what stands behind the cursor"),
    Rule(drop_surplus_tags, "closes what is closed already"),
    Rule(close_formula, "closes what is closed already"),
    Rule(drop_statement_end, "ends a statement that the line goes on with"),
    Rule(leave_closers, "closes what is closed already"),
    Rule(drop_surplus_closers, "closes what is closed already"),
    Rule(cut_at_next_lines, "says what stands below the cursor"),
    Rule(use_line_ends, _WHITE_SPACE),
)


@dataclass(frozen=True, slots=True)
class Filtered:
    """An insertion, and the fault of its text if nothing is left of it."""

    insertion: Insertion
    fault: str = ""


def worth_showing(text: str, context: CursorContext, *, is_cut: bool = False) -> Filtered:
    """The part of the core's `text`, whose lines end in \\n, that is worth showing.

    The suggestion is followed while the user types it, and this decision does not change on the way.
    """
    return _apply(CONTENT, Insertion(text, is_cut=is_cut), context)


def fitted(text: str, context: CursorContext, *, is_cut: bool = False) -> Filtered:
    """The insertion to show at this place for a suggestion, or for its rest; an empty text suggests nothing."""
    return _apply(FIT, Insertion(text, is_cut=is_cut), context)


def _apply(rules: Sequence[Rule], insertion: Insertion, context: CursorContext) -> Filtered:
    for rule in rules:
        insertion = rule.apply(insertion, context)
        if not insertion.text.strip():
            return Filtered(Insertion(""), rule.fault)
    return Filtered(insertion)
