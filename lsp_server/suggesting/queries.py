"""A query for suggestions: the cursor, a popup's selected entry, and the last suggestion, whose rest may answer it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from msgspec import structs

from lsp_server.documents.documents import Document, Edit, Position, moved
from lsp_server.documents.lexing import is_auto_closed
from lsp_server.filters.cursor_context import CursorContext, Insertion, context_at
from lsp_server.filters.likely import SHORT
from lsp_server.filters.order import fitted
from protocol.messages import Prompt


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
    elif suggestion.text.startswith(said) and is_auto_closed(typed, gap):
        context = context_at(document, cursor, hidden=gap + suggestion.hidden)
        insertion = fitted(suggestion.text[len(said) :], context, is_cut=suggestion.is_cut).insertion
    else:
        return None
    if suggestion.held and len(insertion.text.strip()) <= SHORT:
        return None
    return insertion if insertion.text.strip() else None


@dataclass(frozen=True, slots=True)
class Selected:
    """The selected entry: it would put `text` in place of [start, end) of the cursor's line."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Query:
    """A query for a suggestion at the cursor, or for several if the user invoked it explicitly.

    With an entry selected in the popup, a suggestion begins with that entry's text and replaces its range.
    """

    cursor: Position
    invoked: bool = False
    selected: Selected | None = None

    @property
    def on_one_line(self) -> bool:
        """Whether the selected text is one line: longer entries get no suggestion."""
        return self.selected is None or not re.search(r"[\r\n]", self.selected.text)

    def place(self, document: Document, hidden: str, *, multi_line: bool) -> CursorContext:
        """The surroundings of the suggestion, with the selected text in the document; `hidden` is the plan's gap."""
        place = context_at(document, self.cursor, hidden=hidden, multi_line=multi_line)
        if self.selected is None:
            return place
        selected, replaced = self.selected, self.selected.end - self.cursor.column
        before = place.before[: selected.start] + selected.text
        return replace(place, before=before, after=place.after[replaced:], hidden=place.hidden[replaced:])

    def prompt(self, prompt: Prompt, document: Document) -> Prompt:
        """The prompt for the cursor, extended by the selected text."""
        if self.selected is None:
            return prompt
        typed, text = self._typed(document), self.selected.text
        if prompt.increment.endswith(typed):
            return structs.replace(prompt, increment=prompt.increment.removesuffix(typed) + text)
        return structs.replace(prompt, prefix=prompt.prefix.removesuffix(typed) + text)

    def ending(self, document: Document) -> str | None:
        """The rest of the selected text behind the typed text; None if it does not begin with the typed text."""
        if self.selected is None:
            return ""
        typed = self._typed(document)
        extends = self.selected.end == self.cursor.column and self.selected.text.startswith(typed)
        return self.selected.text.removeprefix(typed) if extends else None

    def rests(self, document: Document, suggestions: Iterable[Suggestion]) -> Iterator[Insertion]:
        """The rests of the suggestions that continue what was typed, and the selected text."""
        if (ending := self.ending(document)) is None:
            return
        for suggestion in suggestions:
            rest = rest_of(suggestion, document, self.cursor)
            if rest is not None and rest.text != ending and rest.text.startswith(ending):
                yield self.item(Insertion(rest.text.removeprefix(ending), rest.replaced))

    def item(self, insertion: Insertion) -> Insertion:
        """The insertion with the selected text before it, in the selected entry's range."""
        if self.selected is None:
            return insertion
        column = self.cursor.column
        return replace(
            insertion,
            text=self.selected.text + insertion.text,
            replaced=self.selected.end - column + insertion.replaced,
            taken=column - self.selected.start,
        )

    def _typed(self, document: Document) -> str:
        """The text between the selected entry's start and the cursor."""
        start = self.selected.start if self.selected else self.cursor.column
        return document.lines[self.cursor.line][start : self.cursor.column]
