"""One open document: its mirror, and the state of its cursor and suggestions."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from lsp_server.editing.documents import Document, Edit, LineChange, Position, Replacement
from lsp_server.editing.hunks import trimmed
from lsp_server.editing.literals import Literals
from lsp_server.editing.notebooks import Cells
from lsp_server.editing.spans import follow_cursor
from lsp_server.exclusion.verdict import Verdict
from lsp_server.filters.cursor_context import Insertion
from lsp_server.prompts.planner import Plan, PromptPlanner
from lsp_server.prompts.surroundings import Surroundings
from lsp_server.suggesting.last_suggestion import Suggestion, follow
from lsp_server.suggesting.latest import Latest
from lsp_server.suggesting.reasons import Reason, Switch
from protocol.messages import Completion, CompletionRequest
from protocol.settings import Settings


@dataclass(slots=True)
class OpenDocument:
    """One open document.

    `edits` counts the applied edits, independent of the client's versions: an answer is outdated when the count has
    grown. `inserted_chars` counts the characters that edits inserted since the core last answered for this document,
    ahead work included. `cursor` follows the edits.
    """

    document: Document
    planner: PromptPlanner
    surroundings: Surroundings
    latest: Latest[tuple[Insertion, ...]] = field(default_factory=Latest)
    edits: int = 0
    edited_at: float = -math.inf  # by time.monotonic()
    inserted_chars: int = 0
    cursor: Position = field(default=Position(0, 0))
    suggestions: tuple[Suggestion, ...] = ()  # the last suggestion, and its alternatives
    out_of_step: bool = False  # a change failed, or a line is too long: only the whole text recovers from that
    last_exchange: tuple[CompletionRequest, Completion] | None = None  # with the core, for a suggestion
    cells: Cells | None = None  # the cells of its language in its notebook, which share a planner
    looked_at: bool = False  # the user has viewed it, rather than only opened it
    requests: int = 0  # for suggestions, of which only the newest is answered
    invoked: bool = False  # the user invoked the request that is under way
    switch: Switch = ""  # what switches suggestions off in the client
    outcome: Reason | None = None  # why the last request got no suggestion
    told: Reason | None = None  # what the client knows
    unanswered: tuple[int, Position] | None = None  # `edits` and cursor of a request that an obstacle left unanswered
    literals: Literals = field(init=False)

    def __post_init__(self) -> None:
        self.literals = Literals(self.document)

    def apply(self, edit: Edit) -> tuple[Replacement, LineChange]:
        """Edit the document, and drop state that this invalidates; returns what was replaced, and the lines.

        A bad edit raises BadInput and changes nothing.
        """
        for position in (edit.start, edit.end):
            self.document.check(position)
        replacement = Replacement(edit, self.document.slice(edit.start, edit.end))
        change = in_source = self.document.apply(edit)
        if self.cells is not None:
            self.cells.refresh()
            in_source = self.cells.change(self.document, change)
        self.planner.edited(in_source)
        self.surroundings.ring.edited(self.source, in_source)
        self.literals.edited(change.first)
        self.cursor = self.document.nearest(follow_cursor(self.cursor, edit))
        self.latest.supersede()
        self.edits += 1
        self.edited_at = time.monotonic()
        self.inserted_chars += len(trimmed(replacement).edit.text)  # a client may send the whole text
        self.suggestions = tuple(filter(None, (follow(suggestion, edit) for suggestion in self.suggestions)))
        return replacement, change

    @property
    def session(self) -> str:
        """The session of its prompts in the core: its URI, or for a cell one of its notebook's."""
        return self.source.uri

    @property
    def source(self) -> Document:
        """The document that prompts are cut from: itself, or for a cell all cells of its language."""
        return self.cells.document if self.cells is not None else self.document

    def plan(self, cursor: Position, *, ahead: bool = False) -> Plan:
        """The prompt for a cursor, as `PromptPlanner.plan` makes it."""
        self.document.check(cursor)
        return self.planner.plan(self._in_source(cursor), ahead=ahead)

    async def gather(self, cursor: Position, settings: Settings) -> None:
        """Prepare the snippets of the next prompt, if the prompt at this cursor needs a new anchor."""
        if self.needs_anchor(cursor):
            await self.surroundings.gather(self.source, self._in_source(cursor), settings)

    def needs_anchor(self, cursor: Position) -> bool:
        """Whether the prompt for ahead work at this cursor needs a new anchor."""
        return not self.planner.holds(self._in_source(cursor))

    def _in_source(self, position: Position) -> Position:
        return position if self.cells is None else self.cells.position(self.document, position)

    def lose_step(self) -> None:
        """Mark the mirror as out of step: a change of the client was lost."""
        self.out_of_step = True
        self.latest.supersede()

    @property
    def excluded(self) -> Verdict | None:
        """Why its text may not enter its own prompts, by the last check of the disk; None if it may."""
        return self.surroundings.verdicts.own(self.document.uri)

    def look_at(self, cursor: Position) -> None:
        """Record the cursor; a place reached without an edit counts as viewed.

        The first view of a document also counts line 0 as viewed, since its imports are there.
        """
        self.cursor = cursor
        if not self.looked_at:
            self.surroundings.ring.visited(self.source, 0)
            self.looked_at = True
        if not self.inserted_chars:
            self.surroundings.ring.visited(self.source, self._in_source(cursor).line)

    def let_go(self) -> None:
        """Forget the last suggestion of a newly excluded document, and its snippets in other documents' prompts."""
        self.latest.supersede()
        self.suggestions, self.last_exchange = (), None
        self.surroundings.ring.closed(self.session)
