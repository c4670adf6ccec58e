"""The filters that keep brackets and quotes in balance with what stands behind the cursor."""

from __future__ import annotations

from dataclasses import replace

from lsp_server.editing.brackets import CLOSER_OF, QUOTES
from lsp_server.filters.cursor_context import CursorContext, Insertion

_CLOSERS = frozenset(")]}" + QUOTES)


def keep_balance(insertion: Insertion, context: CursorContext) -> Insertion:
    """Drop closers that the document already has behind the cursor or below it.

    A balanced suggestion stays whole, as `bar()` before `)`. A text that goes on after such a closer replaces the
    document's closer; otherwise the text ends before its own.
    """
    text, statement = insertion.text, context.statement
    if statement.balanced_by(text):
        return insertion
    once = _close_once(insertion, context.after)
    if statement.balanced_by(once.text, once.replaced):
        return once
    last = min(len(text) - 1, statement.balance.first_surplus(text))
    ends = (index for index in range(last, 0, -1) if text[index] in _CLOSERS)
    end = next((end for end in ends if statement.balanced_by(text[:end])), 0)
    return insertion.with_text(text[:end])


def keep_closers(insertion: Insertion, context: CursorContext) -> Insertion:
    """Let the text replace no closers behind the cursor that it has lost to another filter."""
    if not insertion.replaced:
        return insertion
    closed = len(_closed_behind(insertion.text, context.after))
    return replace(insertion, replaced=min(insertion.replaced, closed))


def _close_once(insertion: Insertion, after: str) -> Insertion:
    """Let either the text or the document, not both, close with the closers that `after` begins with."""
    text = insertion.text
    closed = _closed_behind(text, after)
    kept = len(text)
    for index in reversed(closed):
        if index != kept - 1:
            return replace(insertion, replaced=len(closed))
        kept = index
    return insertion.with_text(text[:kept])


def _closed_behind(text: str, after: str) -> list[int]:
    """Where `text` has, in order, the closers that `after` begins with."""
    closed: list[int] = []
    wanted: list[str] = []  # closers of the text's own openers, innermost last
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
