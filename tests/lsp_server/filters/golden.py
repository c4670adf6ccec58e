"""Goldens of the filters: `║` is the cursor, `⟦ ⟧` hold what is inserted there, in place of what it replaces."""

from __future__ import annotations

from lsp_server.editing.documents import Document, Position, split_lines
from lsp_server.filters.cursor_context import CursorContext, Insertion, context_at
from lsp_server.filters.order import Filter, fitted, worth_showing


def place(marked: str, language_id: str = "python", **other: bool) -> CursorContext:
    """The place of the `║` in a document."""
    before, after = marked.split("║")
    lines = split_lines(before)
    document = Document.from_text("file:///a", language_id, 1, before + after)
    return context_at(document, Position(len(lines) - 1, len(lines[-1])), **other)


def shown(marked: str, insertion: Insertion) -> str:
    before, after = marked.split("║")
    return f"{before}⟦{insertion.text}⟧{after[insertion.replaced :]}" if insertion.text else before + "║" + after


def filtered(apply: Filter, marked: str, text: str, language_id: str = "python", **other: bool) -> str:
    """What one filter makes of `text`."""
    return shown(marked, apply(Insertion(text), place(marked, language_id, **other)))


def suggested(marked: str, text: str, language_id: str = "python") -> str:
    """What all the filters make of it."""
    where = place(marked, language_id)
    return shown(marked, fitted(worth_showing(text, where), where))
