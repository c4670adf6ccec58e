"""Offered edits: what is left of one while the user types it, which asks the model nothing, and its parts for display."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rapidfuzz.distance import Indel

from lsp_server.documents.documents import (
    Document,
    Edit,
    Position,
    Replacement,
    changed_ranges,
    end_of,
    moved,
    split_lines,
    trimmed,
)

_MOST_CHARS = 8_000  # to compare more would take a keystroke's time
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_MOST_IN_A_LINE = 3  # more are shown as one: a line that is new has little to do with the old one


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


def parts_of(lines: Sequence[str], edit: Edit) -> list[Edit]:
    """Edits of the document's `lines` that together show what `edit` does; each has its place in the present text.

    One changes text within a line, removes whole lines, or inserts lines: below a line by a text that begins with a
    line feed, or above the first by one that ends with it.
    """
    first, last = edit.start.line, edit.end.line
    new = split_lines(lines[first][: edit.start.column] + edit.text + lines[last][edit.end.column :])
    if lines[last].endswith("\n"):
        new = new[:-1]  # what stands behind that line end is no line of it
    old, new = _without_ends(lines[first : last + 1]), _without_ends(new)
    parts: list[Edit] = []
    for i, j, k, m in changed_ranges(old, new):
        pairs = min(j - i, m - k)
        from_above = _similarity(old[i : i + pairs], new[k : k + pairs])
        below = _similarity(old[j - pairs : j], new[m - pairs : m]) > from_above
        ahead = (j - i - pairs, m - k - pairs) if below else (0, 0)  # old and new lines above those that are paired
        parts += _lines(lines, first + i, ahead[0], new[k : k + ahead[1]])
        for number in range(pairs):
            row = i + ahead[0] + number
            parts += _within(first + row, old[row], new[k + ahead[1] + number])
        if not below:
            parts += _lines(lines, first + i + pairs, j - i - pairs, new[k + pairs : m])
    return parts


def _without_ends(lines: Sequence[str]) -> list[str]:
    return [line.rstrip("\r\n") for line in lines]


def _similarity(old: Sequence[str], new: Sequence[str]) -> float:
    return sum(map(Indel.normalized_similarity, old, new))


def _lines(lines: Sequence[str], row: int, removed: int, new: Sequence[str]) -> Iterator[Edit]:
    """The removal of so many lines from `row` on, or the insertion of new ones above it."""
    if removed:
        ends = row + removed
        end = Position(ends, 0) if ends < len(lines) else Position(ends - 1, len(lines[-1]))
        yield Edit(Position(row, 0), end, "")
    elif new and row:
        end = Position(row - 1, len(lines[row - 1].rstrip("\r\n")))
        yield Edit(end, end, "".join("\n" + line for line in new))
    elif new:
        yield Edit(Position(0, 0), Position(0, 0), "".join(line + "\n" for line in new))


def _within(row: int, old: str, new: str) -> list[Edit]:
    words, new_words = _WORDS.findall(old), _WORDS.findall(new)
    changes = list(changed_ranges(words, new_words))
    if len(changes) > _MOST_IN_A_LINE:
        changes = [(changes[0][0], changes[-1][1], changes[0][2], changes[-1][3])]
    return [
        Edit(
            Position(row, len("".join(words[:begin]))),
            Position(row, len("".join(words[:end]))),
            "".join(new_words[new_begin:new_end]),
        )
        for begin, end, new_begin, new_end in changes
    ]
