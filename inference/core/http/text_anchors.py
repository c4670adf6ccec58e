"""Keeps the anchors of clients that send the text around a cursor, so that their prompts change only where they type.

The language server lays its anchors in documents, which it has whole. Here there are only windows of unknown documents:
an anchor is text of an earlier request, and holds where the request at hand contains it. A prompt never has text that
its request does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from sys import getsizeof

from inference.text.tokenization import LRUCache
from kv_store.interface import SessionKey
from protocol.messages import Prompt, Snippet

LINES_BACK = 8
"""An anchor is laid so many lines above the cursor: corrections within them keep it valid."""

MAX_INCREMENT_BYTES = 1600
"""A byte-level vocabulary has at most as many tokens for it."""

MOST_BYTES = 4  # of a character in UTF-8
MAX_WINDOW_CHARS = 2**18
"""More text on either side of the cursor is cut off: it fits into no context, and would take long to search."""

MAX_SESSIONS = 256
MAX_BYTES = 64 * 2**20
ANCHORS_PER_SESSION = 8
ANONYMOUS_ANCHORS = 64  # all clients of a user without a session share them

_COMPARED = 64  # characters of a window by which it is looked for; shorter ones say nothing of another document

Files = tuple[Snippet, ...]


@dataclass(frozen=True, slots=True)
class TextAnchor:
    """A frozen prefix and suffix, with the files in front of them."""

    prefix: str
    suffix: str
    files: Files

    def start(self, before: str, after: str) -> int | None:
        """The start of the increment in the text `before` the cursor, if the anchor holds.

        It holds if the prefix ends at most MAX_INCREMENT_BYTES before the cursor, and the suffix begins at the cursor.
        Each has to be at least half of its window. An empty prefix would hold in any document, and so holds in none.
        """
        if not self.prefix or not _serves(self.suffix, after):
            return None
        end = self._end_of_prefix(before)
        return end if end is not None and 2 * (end - len(self.prefix)) <= end else None

    def _end_of_prefix(self, before: str) -> int | None:
        lowest = max(len(self.prefix), len(before) - _last_chars(before, MAX_INCREMENT_BYTES))
        tail = self.prefix[-_COMPARED:]
        place = before.find(tail, lowest - len(tail))
        while place >= 0 and not before.endswith(self.prefix, 0, place + len(tail)):
            place = before.find(tail, place + 1)
        return None if place < 0 else place + len(tail)


def repeatable_prompt(before: str, after: str, files: Files = ()) -> Prompt:
    """The EFIM prompt that follows from these texts alone, without a session's anchors."""
    before, after = before[-MAX_WINDOW_CHARS:], after[:MAX_WINDOW_CHARS]
    anchor, start = _lay((), before, after, files)
    return Prompt(anchor.prefix, anchor.suffix, before[start:], files)


class TextAnchors:
    """The anchors of each session, the most recently used first."""

    def __init__(self) -> None:
        self._sessions: LRUCache[SessionKey, list[TextAnchor]] = LRUCache(MAX_SESSIONS, MAX_BYTES)

    def prompt(self, session: SessionKey, before: str, after: str, files: Files = (), *, prefetch: bool = False) -> Prompt:
        """The EFIM prompt for a cursor between two texts.

        `prefetch` says that the prompt is only made resident: without texts, it is the session's last anchor, behind
        the files that its next request will have.
        """
        before, after = before[-MAX_WINDOW_CHARS:], after[:MAX_WINDOW_CHARS]
        known = self._sessions.get(session) or []
        if prefetch and known and not session.is_anonymous and not (before or after):
            anchor, start = replace(known[0], files=files), 0
        else:
            anchor, start = _find(known, before, after, files) or _lay(known, before, after, files)
        self._keep(session, [anchor, *(other for other in known if other != anchor)])
        return Prompt(anchor.prefix, anchor.suffix, before[start:], anchor.files)

    def forget(self, user: str) -> None:
        """Drop the anchors of the user's sessions; of all sessions without a user, for the core's own token.

        A document was excluded, and windows of unknown documents may hold its text.
        """
        for session in [known for known in self._sessions if not user or known.user == user]:
            self._sessions.remove(session)

    def _keep(self, session: SessionKey, anchors: list[TextAnchor]) -> None:
        del anchors[ANONYMOUS_ANCHORS if session.is_anonymous else ANCHORS_PER_SESSION :]
        self._sessions.put(session, anchors, sum(map(_size, anchors)))


def _find(known: Sequence[TextAnchor], before: str, after: str, files: Files) -> tuple[TextAnchor, int] | None:
    """An anchor that holds, with these files, and where its increment begins; those that had these files come first."""
    for anchor in sorted(known, key=lambda anchor: anchor.files != files):
        start = anchor.start(before, after)
        if start is not None:
            return replace(anchor, files=files), start
    return None


def _lay(known: Sequence[TextAnchor], before: str, after: str, files: Files) -> tuple[TextAnchor, int]:
    start = increment_start(before)
    first = _first_of_prefix(known, before[:start])
    return TextAnchor(before[first:start], after[: _end_of_suffix(known, after)], files), start


def increment_start(before: str) -> int:
    """The start of an increment that ends with the text: LINES_BACK lines above its last one.

    If it would exceed half of MAX_INCREMENT_BYTES it has fewer lines, and begins within a line only if that line alone
    exceeds the limit.
    """
    limit = MAX_INCREMENT_BYTES // 2
    lowest = len(before) - _last_chars(before, limit)
    start = len(before)
    for _ in range(LINES_BACK + 1):
        line = before.rfind("\n", 0, max(0, start - 1)) + 1
        if line < lowest:
            break
        start = line
    if start < len(before) or not before or before.endswith("\n"):
        return start
    step = limit if before[lowest:].isascii() else limit // MOST_BYTES
    return max(0, len(before) - step // 2) // step * step


def _last_chars(text: str, limit: int) -> int:
    """Number of characters at the end of `text` that have at most `limit` bytes in UTF-8."""
    return len(text[-limit:].encode()[-limit:].decode(errors="ignore"))


def _first_of_prefix(known: Sequence[TextAnchor], text: str) -> int:
    """The start of the prefix: that of an earlier one, so that they share their first tokens, else at the start.

    If only the end of an earlier prefix is in the text, the window moves with the cursor: the prefix begins about a
    quarter further down, so that the next ones can begin there too.
    """
    prefixes = [anchor.prefix for anchor in known if len(anchor.prefix) >= _COMPARED]
    for prefix in prefixes:
        place = text.find(prefix[:_COMPARED])
        if 0 <= 2 * place <= len(text):
            return place
    if any(prefix[-_COMPARED:] in text for prefix in prefixes):
        quarter = len(text) // 4
        return text.find("\n", quarter, 2 * quarter) + 1 or quarter
    return 0


def _end_of_suffix(known: Sequence[TextAnchor], after: str) -> int:
    """The end of the suffix: that of an earlier one, else at the end.

    If only the beginning of an earlier suffix is there, the window moves: the suffix ends about a quarter further up.
    """
    suffixes = [anchor.suffix for anchor in known if len(anchor.suffix) >= _COMPARED]
    for suffix in suffixes:
        if _serves(suffix, after):
            return len(suffix)
    if any(after.startswith(suffix[: len(suffix) // 2]) for suffix in suffixes):
        quarter = len(after) // 4
        return after.rfind("\n", 2 * quarter, len(after) - quarter) + 1 or len(after) - quarter
    return len(after)


def _serves(suffix: str, after: str) -> bool:
    return after.startswith(suffix) and 2 * len(suffix) >= len(after)


def _size(anchor: TextAnchor) -> int:
    texts = (anchor.prefix, anchor.suffix, *(text for file in anchor.files for text in (file.path, file.text)))
    return sum(map(getsizeof, texts))
