"""Tells what the user typed from what was pasted, undone or reformatted."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

from lsp_server.editing.documents import Position, Replacement
from lsp_server.editing.hunks import trimmed
from lsp_server.editing.spans import end_of
from lsp_server.usage.statistics import Statistics

# A key inserts a character, a pair of brackets, or a line end and indentation; one change may hold some keys.
_MOST_CHARACTERS = 8
_MOST_SPACE = 200
_WORD = re.compile(r"\w{1,80}(\(\)?)?")  # an entry of the completion popup
_REPLACED = re.compile(r"\s*\w*\s*")  # by more than one character
_REMEMBERED = 64  # deleted texts, for undo and redo
_LONGEST_REMEMBERED = 10_000


class Keyboard:
    """The keyboard as far as changes of documents show it. It keeps a few deleted texts in memory only."""

    def __init__(self) -> None:
        self._deleted: deque[tuple[str, Position, str]] = deque(maxlen=_REMEMBERED)

    def changed(self, uri: str, replacements: Sequence[Replacement]) -> Statistics:
        """What was typed in this change of the document `uri`."""
        parts = [trimmed(replacement) for replacement in replacements]
        if len(parts) > 1 and not _is_a_row(parts):
            alike = len({(part.edit.text, part.replaced) for part in parts}) == 1
            parts = parts[:1] if alike else []  # several cursors, or a formatter, a refactoring
        typed = [self._typed(uri, part) for part in parts]
        return Statistics() if None in typed else Statistics(typed_characters=sum(filter(None, typed)))

    def _typed(self, uri: str, part: Replacement) -> int | None:
        """How many characters were typed; None if no key did this."""
        start, text, replaced = part.edit.start, part.edit.text, part.replaced
        if is_restored := (uri, start, text) in self._deleted:
            self._deleted.remove((uri, start, text))
        if replaced and len(replaced) <= _LONGEST_REMEMBERED:
            self._deleted.append((uri, start, replaced))
        if not text:
            return 0 if len(replaced) <= _MOST_CHARACTERS else None
        if is_restored:
            return 0 if len(text) == 1 else None  # one character may be typed again; it counts once
        word = text.strip()
        is_short = len(word) <= _MOST_CHARACTERS or _WORD.fullmatch(word)
        is_over_word = len(text) == 1 or _REPLACED.fullmatch(replaced)
        return len(text) if is_short and is_over_word and len(text) - len(word) <= _MOST_SPACE else None


def _is_a_row(parts: Sequence[Replacement]) -> bool:
    """Whether each part goes on where the one before it ended, as keys do."""
    ends = [end_of(part.edit.start, part.edit.text) for part in parts[:-1]]
    return all(end in (part.edit.start, part.edit.end) for end, part in zip(ends, parts[1:], strict=True))
