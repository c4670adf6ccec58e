"""Follows accepted texts through the edits of their documents, and counts later what of them is kept."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from rapidfuzz.distance import LCSseq

from lsp_server.documents.documents import Edit, Replacement, Span, follow_span, hunks
from lsp_server.suggesting.open_documents import OpenDocument
from lsp_server.usage.statistics import Group, Statistics

MOST_FOLLOWED = 200  # spans, over all documents
_COMPARED_CHARACTERS = 2000
_WORDS = re.compile(r"\w+|\s+|.")


class Look(NamedTuple):
    """When to look again at an accepted text, and how its length and the length of what is kept are counted."""

    after_s: float
    counts: Callable[[int, int], Statistics]


LOOKS = (
    Look(30.0, lambda watched, kept: Statistics(watched_30s=watched, kept_30s=kept)),
    Look(600.0, lambda watched, kept: Statistics(watched_10min=watched, kept_10min=kept)),
)


@dataclass(slots=True, eq=False)
class Followed:
    """An accepted text, and where it is now."""

    opened: OpenDocument
    group: Group  # of its acceptance
    text: str
    span: Span
    looks: list[Look]  # those to come
    timer: asyncio.TimerHandle | None = None


class KeptText:
    """Counts each text once per look. If its document is closed earlier, what is there then counts."""

    def __init__(self, count: Callable[[Group, Statistics], None], looks: Iterable[Look] = LOOKS) -> None:
        self._count = count
        self._looks = tuple(looks)
        self._followed: dict[Followed, None] = {}  # the oldest first

    def follow(self, opened: OpenDocument, group: Group, text: str, span: Span) -> Followed:
        """Follow this text, which was just accepted and stands in this span."""
        for oldest in [*self._followed][: max(len(self._followed) + 1 - MOST_FOLLOWED, 0)]:
            self._settle(oldest)
        followed = Followed(opened, group, text, span, list(self._looks))
        self._followed[followed] = None
        self._wait(followed, since_s=0.0)
        return followed

    def grow(self, followed: Followed, text: str, span: Span) -> bool:
        """Take the text in `span` as the end of a followed one; False if that is not so, or too late."""
        grows = followed in self._followed and followed.span.end == span.start and len(followed.looks) == len(self._looks)
        if grows:
            followed.text, followed.span = followed.text + text, Span(followed.span.start, span.end)
        return grows

    def edited(self, opened: OpenDocument, replacements: Iterable[Replacement]) -> None:
        ours = [followed for followed in self._followed if followed.opened is opened]
        for replacement in replacements if ours else ():
            edit = replacement.edit
            meets = (edit.start < each.span.end and each.span.start < edit.end for each in ours)
            for part in hunks(replacement) if replacement.replaced and any(meets) else (edit,):
                _move(ours, part)

    def closed(self, uri: str) -> None:
        """Count the texts of this document as they are now."""
        for followed in [each for each in self._followed if each.opened.document.uri == uri]:
            self._settle(followed)

    def close(self) -> None:
        """Count all texts as they are now."""
        for followed in [*self._followed]:
            self._settle(followed)

    def _wait(self, followed: Followed, since_s: float) -> None:
        if followed.looks:
            pause = followed.looks[0].after_s - since_s
            followed.timer = asyncio.get_running_loop().call_later(pause, self._look, followed)
        else:
            del self._followed[followed]

    def _look(self, followed: Followed) -> None:
        look = followed.looks.pop(0)
        self._count(followed.group, look.counts(*_lengths(followed)))
        self._wait(followed, look.after_s)

    def _settle(self, followed: Followed) -> None:
        """Count what is there now for all looks to come."""
        if followed.timer is not None:
            followed.timer.cancel()
        lengths = _lengths(followed)
        for look in followed.looks:
            self._count(followed.group, look.counts(*lengths))
        del self._followed[followed]


def _move(all_followed: Iterable[Followed], edit: Edit) -> None:
    """Follow the edit; spans behind another line's edit, and spans before the edit, stay where they are."""
    on_one_line = edit.start.line == edit.end.line and not re.search(r"[\r\n]", edit.text)
    for followed in all_followed:
        span = followed.span
        if edit.start > span.end or (on_one_line and edit.end.line < span.start.line):
            continue
        followed.span = follow_span(span, edit)


def _lengths(followed: Followed) -> tuple[int, int]:
    """How many characters of the text are compared, and how many, by whole words in their order, are still there."""
    text, span, document = followed.text[:_COMPARED_CHARACTERS], followed.span, followed.opened.document
    reaches = span.start <= span.end <= document.end
    there = document.slice(span.start, span.end)[: 2 * _COMPARED_CHARACTERS] if reaches else ""
    words, words_now = _WORDS.findall(text), _WORDS.findall(there)
    same = LCSseq.opcodes(words, words_now).as_matching_blocks()
    return len(text), sum(len(word) for block in same for word in words[block.a : block.a + block.size])
