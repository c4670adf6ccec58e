"""What was suggested last, followed through the edits since: its rest is served while the user types it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lsp_server.brackets import is_auto_closed
from lsp_server.documents import Document, Edit, Position, split_lines


@dataclass(frozen=True, slots=True)
class Offer:
    """The core's text for the place `start`; from there to `end` stands what was typed since."""

    start: Position
    end: Position
    text: str  # with \n for line ends


def offer_at(cursor: Position, text: str) -> Offer:
    """A fresh offer, of which nothing has been typed."""
    return Offer(cursor, cursor, text)


def follow(offer: Offer, edit: Edit) -> Offer | None:
    """The offer after an edit of what was typed; None if the edit changed anything else."""
    if edit.start < offer.start or edit.end > offer.end:
        return None
    inserted = split_lines(edit.text)
    last_line = edit.start.line + len(inserted) - 1
    last_column = len(inserted[-1]) + (edit.start.column if len(inserted) == 1 else 0)
    line = last_line + offer.end.line - edit.end.line
    column = offer.end.column
    if offer.end.line == edit.end.line:
        column += last_column - edit.end.column
    return replace(offer, end=Position(line, column))


def rest_of(offer: Offer, document: Document, cursor: Position) -> str:
    """What of the offer is still to be typed at the cursor; empty if something else was typed.

    Behind the cursor may stand what the editor closed on its own.
    """
    if not offer.start <= cursor <= offer.end:
        return ""
    typed = document.slice(offer.start, cursor).replace("\r\n", "\n")
    gap = document.slice(cursor, offer.end)
    if not offer.text.startswith(typed) or (gap and not is_auto_closed(typed, gap)):
        return ""
    return offer.text[len(typed) :]
