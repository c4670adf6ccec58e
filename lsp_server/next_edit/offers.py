"""Offered edits while the user types: an offer whose text the user types stays valid, and asks the model nothing."""

from __future__ import annotations

from rapidfuzz.distance import Indel

from lsp_server.documents.documents import Document, Edit, Replacement, end_of, moved, trimmed

_MOST_CHARS = 8_000  # to compare more would take a keystroke's time


def rebased(offer: Replacement, typed: Replacement) -> Replacement | None:
    """The rest of the offer after the user's edit; None without one, or if the edit contradicts it.

    An edit before or behind the offer only moves it. One inside of it must leave a beginning of the offer's text, or
    bring the document nearer to it by every character, and insert where the text begins or ends.
    """
    edit, old = offer
    if typed.edit.end < edit.start:
        start = moved(edit.start, typed.edit)
        return Replacement(Edit(start, end_of(start, old), edit.text), old)
    if typed.edit.start > edit.end:
        return offer
    if typed.edit.start < edit.start or typed.edit.end > edit.end:
        return None
    offset = _offset(edit, old, typed)
    inserted, deleted = typed.edit.text, typed.replaced
    now = old[:offset] + inserted + old[offset + len(deleted) :]
    if len(now) + len(edit.text) > _MOST_CHARS:
        return None
    begins = edit.text.startswith(now[: offset + len(inserted)])
    ends = edit.text.endswith(now[offset:])
    nearer = Indel.distance(old, edit.text) - Indel.distance(now, edit.text)
    helps = nearer == len(inserted) + len(deleted) and (not inserted or begins or ends)
    if now == edit.text or not (helps or (now and edit.text.startswith(now))):
        return None
    return trimmed(Replacement(Edit(edit.start, end_of(edit.start, now), edit.text), now))


def typed_at(offer: Replacement, typed: Replacement, document: Document) -> Replacement:
    """The edit of a user as one at the offer's end, if the text is the same then and the offer goes on or is done.

    Clients that compare texts report one of the places where an insertion may have been; `document` has it already.
    """
    place, start, end, text = offer.edit.end, typed.edit.start, typed.edit.end, typed.edit.text
    if not place < start == end or start.line - place.line > text.count("\n"):
        return typed
    between = document.slice(place, start)
    if not text.endswith(between):
        return typed
    moved = Replacement(Edit(place, place, between + text.removesuffix(between)), "")
    is_done = offer.replaced + moved.edit.text == offer.edit.text
    return moved if is_done or rebased(offer, moved) is not None else typed


def _offset(edit: Edit, old: str, typed: Replacement) -> int:
    """The offset of the typed edit in the offer's old text."""
    low, high = 0, len(old)
    while low < high:
        middle = (low + high) // 2
        if end_of(edit.start, old[:middle]) < typed.edit.start:
            low = middle + 1
        else:
            high = middle
    return low
