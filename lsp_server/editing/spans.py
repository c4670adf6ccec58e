"""Follows a span of a document, or a cursor, through edits."""

from __future__ import annotations

from dataclasses import dataclass

from lsp_server.editing.documents import Edit, Position, split_lines


@dataclass(frozen=True, slots=True)
class Span:
    """The text of [start, end)."""

    start: Position
    end: Position


def end_of(start: Position, text: str) -> Position:
    """Where `text` ends if it begins at `start`."""
    return moved(start, Edit(start, start, text)) if text else start


def follow_span(span: Span, edit: Edit) -> Span:
    """Where the span is after an edit; text inserted right at its end belongs to it only while it is empty."""
    empty = span.start == span.end
    return Span(_start(span.start, edit, stays=empty), _end(span.end, edit, grows=empty))


def follow_cursor(cursor: Position, edit: Edit) -> Position:
    """Where a cursor is after an edit: behind text inserted at it; in a replaced text, at most at the new text's end.

    The position may lie outside of the document where the edit joined or split a line end.
    """
    if edit.end <= cursor:
        return moved(cursor, edit)
    return min(cursor, end_of(edit.start, edit.text))


def _start(start: Position, edit: Edit, *, stays: bool) -> Position:
    if edit.start > start or (stays and edit.start == start):
        return start
    if edit.end <= start:
        return moved(start, edit)
    return moved(edit.end, edit)


def _end(end: Position, edit: Edit, *, grows: bool) -> Position:
    if edit.end < end or (grows and edit.end == end):
        return moved(end, edit)
    return min(end, edit.start)


def moved(position: Position, edit: Edit) -> Position:
    """Where `position` is after the edit; it must not lie before the edit's end."""
    inserted = split_lines(edit.text)
    last_line = edit.start.line + len(inserted) - 1
    last_column = len(inserted[-1]) + (edit.start.column if len(inserted) == 1 else 0)
    column = position.column
    if position.line == edit.end.line:
        column += last_column - edit.end.column
    return Position(last_line + position.line - edit.end.line, column)
