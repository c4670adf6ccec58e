"""The last suggestion, followed through later edits: its rest is served while the user types it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lsp_server.editing.brackets import is_auto_closed
from lsp_server.editing.documents import Document, Edit, Position
from lsp_server.editing.spans import moved
from lsp_server.filters.cursor_context import Insertion, context_at
from lsp_server.filters.likely import SHORT
from lsp_server.filters.order import fitted


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggestion for the place `start`; the text from there to `end` was typed since.

    `text` is the completion after the content filters, with \\n for line ends; `shown` is the suggestion that was
    shown (or would have been: a suggestion that is `held` back is shown once the user types its beginning). `hidden` is
    what its prompt left out behind the place, and `is_cut` as in `Insertion`.
    """

    start: Position
    end: Position
    text: str
    shown: Insertion
    held: bool = False
    hidden: str = ""
    is_cut: bool = False


def follow(suggestion: Suggestion, edit: Edit) -> Suggestion | None:
    """The suggestion after an edit of the typed text; None if the edit changed anything else."""
    if edit.start < suggestion.start or edit.end > suggestion.end:
        return None
    return replace(suggestion, end=moved(suggestion.end, edit))


def rest_of(suggestion: Suggestion, document: Document, cursor: Position) -> Insertion | None:
    """The rest of the suggestion at the cursor; None if the user typed something else, or all of it.

    If the editor auto-closed brackets behind the cursor, the fit filters run again. Otherwise the rest is exactly
    the rest of the text shown before. Of a suggestion that was held back no short rest is shown.
    """
    if not suggestion.start <= cursor <= suggestion.end:
        return None
    typed = document.slice(suggestion.start, cursor)
    gap = document.slice(cursor, suggestion.end)
    if not typed and suggestion.held:
        return None
    said = typed.replace("\r\n", "\n")
    if not gap and suggestion.shown.text.startswith(typed):
        insertion = replace(suggestion.shown, text=suggestion.shown.text[len(typed) :])
    elif suggestion.text.startswith(said) and (not gap or is_auto_closed(typed, gap)):
        context = context_at(document, cursor, hidden=gap + suggestion.hidden)
        insertion = fitted(suggestion.text[len(said) :], context, is_cut=suggestion.is_cut).insertion
    else:
        return None
    if suggestion.held and len(insertion.text.strip()) <= SHORT:
        return None
    return insertion if insertion.text.strip() else None
