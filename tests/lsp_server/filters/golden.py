"""Goldens of the filters: `║` is the cursor, `⟦ ⟧` hold what is inserted there, in place of what it replaces."""

from __future__ import annotations

from lsp_server.documents.documents import Document, Position, split_lines
from lsp_server.filters.cursor_context import CursorContext, Insertion, context_at
from lsp_server.filters.order import Filter, fitted, worth_showing
from lsp_server.prompts.anchors import WindowBudget
from lsp_server.prompts.planner import PromptPlanner


def place(marked: str, language_id: str = "python", **other: bool) -> CursorContext:
    """The place of the `║` in a document; hidden is what the planner leaves out of the prompt."""
    before, after = marked.split("║")
    lines = split_lines(before)
    document = Document.from_text("file:///a", language_id, 1, before + after)
    cursor = Position(len(lines) - 1, len(lines[-1]))
    gap = PromptPlanner(document, WindowBudget(512, 256)).plan(cursor).gap
    return context_at(document, cursor, hidden=gap, **other)


def shown(marked: str, insertion: Insertion) -> str:
    before, after = marked.split("║")
    return f"{before}⟦{insertion.text}⟧{after[insertion.replaced :]}" if insertion.text else before + "║" + after


def filtered(apply: Filter, marked: str, text: str, language_id: str = "python", *, is_cut: bool = False) -> str:
    """What one filter makes of `text`."""
    return shown(marked, apply(Insertion(text, is_cut=is_cut), place(marked, language_id)))


def suggested(marked: str, text: str, language_id: str = "python", *, is_cut: bool = False) -> str:
    """What all the filters make of it."""
    where = place(marked, language_id)
    worth = worth_showing(text, where, is_cut=is_cut).insertion.text
    return shown(marked, fitted(worth, where, is_cut=is_cut).insertion)
