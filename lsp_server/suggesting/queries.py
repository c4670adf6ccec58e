"""A client's query for suggestions, and how the entry selected in its completion popup changes it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from msgspec import structs

from lsp_server.editing.documents import Document, Position
from lsp_server.filters.cursor_context import CursorContext, Insertion, context_at
from lsp_server.suggesting.last_suggestion import Suggestion, rest_of
from protocol.messages import Prompt


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
