"""The last suggestion, followed through later edits: its rest is served while the user types it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lsp_server.editing.brackets import is_auto_closed
from lsp_server.editing.documents import Document, Edit, Position
from lsp_server.editing.spans import moved
from lsp_server.filters.cursor_place import Insertion, place_at
from lsp_server.filters.order import fitted


@dataclass(frozen=True, slots=True)
class Offer:
    """A suggestion for the place `start`; the text from there to `end` was typed since.

    `text` is the completion after the content filters, with \\n for line ends; `shown` is the suggestion that was
    shown (or would have been: an offer that is `held` back is shown once the user types its beginning).
    """

    start: Position
    end: Position
    text: str
    shown: Insertion
    held: bool = False


def offer_at(cursor: Position, text: str, shown: Insertion, *, held: bool = False) -> Offer:
    """A fresh offer, of which nothing has been typed."""
    return Offer(cursor, cursor, text, shown, held)


def follow(offer: Offer, edit: Edit) -> Offer | None:
    """The offer after an edit of the typed text; None if the edit changed anything else."""
    if edit.start < offer.start or edit.end > offer.end:
        return None
    return replace(offer, end=moved(offer.end, edit))


def rest_of(offer: Offer, document: Document, cursor: Position) -> Insertion | None:
    """The rest of the offer at the cursor; None if the user typed something else, or all of it.

    If the editor auto-closed brackets behind the cursor, the fit filters run again. Otherwise the rest is exactly
    the rest of the text shown before.
    """
    if not offer.start <= cursor <= offer.end:
        return None
    typed = document.slice(offer.start, cursor)
    gap = document.slice(cursor, offer.end)
    if not typed and offer.held:
        return None
    said = typed.replace("\r\n", "\n")
    if not gap and offer.shown.text.startswith(typed):
        insertion = replace(offer.shown, text=offer.shown.text[len(typed) :])
    elif offer.text.startswith(said) and (not gap or is_auto_closed(typed, gap)):
        insertion = fitted(offer.text[len(said) :], place_at(document, cursor))
    else:
        return None
    return insertion if insertion.text.strip() else None
