"""Checks a replay's suggestions for duplicates and unmatched closers, by rules independent of the filters."""

from __future__ import annotations

import re

from lsp_server.editing.documents import Document, Position, line_length
from lsp_server.editing.lexing import MOST_CHARS, surplus_closers
from midfill.headless.lsp_values import Suggestion

DUPLICATE = "repeats the text after the cursor"
CLOSERS = "closes a bracket that is not open"
OUTDATED = "belongs to an outdated document"
KINDS = {DUPLICATE: "duplicates", CLOSERS: "closers", OUTDATED: "outdated"}

_CLOSING = ")]}"
_SAYS_ENOUGH = 3  # word characters; a shorter repetition is no duplicate


def find_faults(document: Document, shown: Suggestion) -> list[str]:
    """The faults of a suggestion for this document, of `KINDS`; empty if it has none."""
    line = document.lines[shown.end.line]
    behind = line[shown.end.column : line_length(line)]
    found = []
    if _says_rest_of_line(shown.text, behind) or _says_next_line(document, shown, behind):
        found.append(DUPLICATE)
    nothing = Suggestion("", shown.start, shown.start)
    if any(closer in shown.text for closer in _CLOSING) and (
        _unmatched_closers(document, shown) > _unmatched_closers(document, nothing)
    ):
        found.append(CLOSERS)
    return found


def _says_rest_of_line(text: str, behind: str) -> bool:
    """Whether the text contains the rest of the line, or ends with its beginning."""
    rest = behind.strip()
    if _word_characters(rest) >= _SAYS_ENOUGH and rest in text:
        return True
    overlaps = (rest[:length] for length in range(1, len(rest) + 1) if text.endswith(rest[:length]))
    return any(_word_characters(overlap) >= _SAYS_ENOUGH for overlap in overlaps)


def _says_next_line(document: Document, shown: Suggestion, behind: str) -> bool:
    """Whether one of the new lines equals the document's next line that is not blank."""
    below = (line.rstrip() for line in document.lines[shown.end.line + 1 :])
    next_line = next((line for line in below if line), "")
    head = document.lines[shown.start.line][: shown.start.column]
    lines = [line.rstrip() for line in re.split(r"\r\n|\n", head + shown.text + behind)]
    return _word_characters(next_line) >= _SAYS_ENOUGH and next_line in lines


def _unmatched_closers(document: Document, shown: Suggestion) -> int:
    """Closing brackets without an opening one near the place, once the suggestion is accepted."""
    head = document.slice(Position(0, 0), shown.start)[-MOST_CHARS // 2 :]
    tail = document.slice(shown.end, document.end)[: MOST_CHARS // 2]
    return surplus_closers(head + shown.text + tail, document.language_id)


def _word_characters(text: str) -> int:
    return len(re.findall(r"\w", text))
