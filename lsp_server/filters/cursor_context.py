"""The values that the filters work on: the cursor's surroundings, and the insertion at the cursor."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, islice
from typing import Literal

from lsp_server.documents.documents import Document, Position, line_length
from lsp_server.documents.languages import Language, language, tab_width
from lsp_server.documents.lexing import CLOSER_OF, MOST_CHARS
from lsp_server.documents.tally import Counts

LONGEST_LINE = 10_000  # code points; the server suggests nothing in a longer line, and reads none
_WINDOW_LINES = 100  # above the cursor's line, and as many below
_WINDOW_CHARS = 20_000  # code points of these lines, above and below each
_WORD_CHARACTER = re.compile(r"\w")


@dataclass(frozen=True)
class CursorContext:
    """The lines nearest to the cursor, as the filters see them. Derived values are computed once."""

    before: str = ""  # of the cursor's line
    after: str = ""  # of the cursor's line
    lines_above: tuple[str, ...] = ()  # with their ends, as those below
    lines_below: tuple[str, ...] = ()
    hidden: str = ""  # behind the cursor: auto-closed text that the prompt leaves out; may go on in the lines below
    language_id: str = ""
    line_end: str = "\n"  # of the document
    document: Sequence[str] = field(default=(), compare=False)  # all of its lines
    counts: Counts = field(default=Counts(Counter(), Counter()), compare=False)  # of brackets and quotes, at the cursor's line
    multi_line: bool = True  # whether blocks are wanted

    @cached_property
    def filled_above(self) -> tuple[str, ...]:
        """The lines above that are not blank, without trailing white space."""
        return tuple(filter(None, map(str.rstrip, self.lines_above)))

    @cached_property
    def filled_below(self) -> tuple[str, ...]:
        """The lines below that are not blank, without trailing white space."""
        return tuple(filter(None, map(str.rstrip, self.lines_below)))

    @cached_property
    def lacking(self) -> Mapping[str, int]:
        """How many closing brackets of each kind the document has too few; those in strings and comments count too."""
        counts = self.counts.whole
        return {closer: counts[opener] - counts[closer] for opener, closer in CLOSER_OF.items()}

    @cached_property
    def is_too_long_to_lex(self) -> bool:
        """Whether the document has more than MOST_CHARS code points: no more of its lines are looked at to say so."""
        return sum(map(len, islice(self.document, MOST_CHARS + 1))) > MOST_CHARS

    @cached_property
    def tab_columns(self) -> Literal[4, 8]:
        return tab_width((*self.lines_above, self.before + "x", *self.lines_below))

    @property
    def language(self) -> Language:
        return language(self.language_id)

    @property
    def hidden_here(self) -> str:
        """The hidden text on the cursor's line."""
        return self.hidden[: len(self.after)]


@dataclass(frozen=True, slots=True)
class Insertion:
    """The text to put at the cursor, its lines ending in \\n until the last filter; an empty text suggests nothing.

    It replaces `replaced` code points behind the cursor and `taken` code points before it. `is_cut` says that a limit,
    or what the model was sure of, ended the text, rather than the model or a stop rule.
    """

    text: str
    replaced: int = 0
    taken: int = 0  # by the entry that is selected in the popup; the filters leave it alone
    is_cut: bool = field(default=False, compare=False)

    def with_text(self, text: str) -> Insertion:
        return self if text == self.text else replace(self, text=text)


def context_at(document: Document, cursor: Position, *, hidden: str = "", multi_line: bool = True) -> CursorContext:
    """The place of a cursor in a line of the document that is no longer than LONGEST_LINE.

    It holds at most _WINDOW_LINES lines and _WINDOW_CHARS code points above, and as many below. `hidden` is the gap
    that the prompt leaves out.
    """
    lines = document.lines
    line = lines[cursor.line]
    end = line_length(line)
    return CursorContext(
        before=line[: cursor.column],
        after=line[cursor.column : end],
        lines_above=_nearest(lines[max(0, cursor.line - _WINDOW_LINES) : cursor.line][::-1])[::-1],
        lines_below=_nearest(lines[cursor.line + 1 : cursor.line + 1 + _WINDOW_LINES]),
        hidden=hidden,
        document=lines,
        counts=document.counts(cursor.line),
        language_id=document.language_id,
        line_end=line[end:] or lines[0][line_length(lines[0]) :] or "\n",
        multi_line=multi_line,
    )


def _nearest(lines: Sequence[str]) -> tuple[str, ...]:
    """The first lines, up to _WINDOW_CHARS code points."""
    ends = list(accumulate(map(len, lines)))
    return tuple(lines[: bisect_right(ends, _WINDOW_CHARS)])


def word_characters(text: str) -> int:
    """How many letters, digits and underscores `text` has: a measure of its content."""
    return len(_WORD_CHARACTER.findall(text))
