"""The client's open documents: their mirrors, and the state of cursor and suggestions for each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from lsp_server.editing.documents import Document, Edit, LineChange, Position
from lsp_server.editing.notebooks import Cells
from lsp_server.editing.positions import ClientPosition, PositionCodec, PositionEncoding
from lsp_server.editing.spans import Span, follow_cursor, follow_span
from lsp_server.filters.balance import Balance
from lsp_server.filters.cursor_context import LONGEST_LINE, Insertion
from lsp_server.prompts.planner import Plan, PromptPlanner
from lsp_server.prompts.surroundings import Surroundings
from lsp_server.suggesting.last_suggestion import Suggestion, follow
from lsp_server.suggesting.latest import Latest
from protocol.errors import BadInput
from protocol.messages import Completion, CompletionRequest
from protocol.settings import Settings

logger = logging.getLogger(__name__)

# A document with a line of more code points is not followed: every edit of the line would copy it.
_LONGEST_FOLLOWED = 10_000_000

_PLANNING_SETTINGS = ("prefix_tokens", "suffix_tokens", "strategy", "other_files", "other_files_tokens")


@dataclass(frozen=True, slots=True)
class Change:
    """One change from the client; without a range it is the whole text."""

    text: str
    range: tuple[ClientPosition, ClientPosition] | None = None


@dataclass(slots=True)
class OpenDocument:
    """One open document.

    `edits` counts the applied edits, independent of the client's versions: an answer is outdated when the count has
    grown. `inserted` is the text that edits inserted since the last request. `cursor` follows the edits.
    """

    document: Document
    planner: PromptPlanner
    surroundings: Surroundings
    latest: Latest[tuple[Insertion, ...]] = field(default_factory=Latest)
    edits: int = 0
    inserted: str = ""
    cursor: Position = field(default=Position(0, 0))
    suggestions: tuple[Suggestion, ...] = ()  # the last suggestion, and its alternatives
    watched: dict[int, Span] = field(default_factory=dict)  # followed through all edits, by the keys of `watch`
    balance: Balance | None = None  # of the last request's statement
    out_of_step: bool = False  # a change failed, or a line is too long: only the whole text recovers from that
    last_exchange: tuple[CompletionRequest, Completion] | None = None  # with the core, for a suggestion
    cells: Cells | None = None  # the cells of its language in its notebook, which share a planner
    looked_at: bool = False  # the user has viewed it, rather than only opened it
    requests: int = 0  # for suggestions, of which only the newest is answered

    def apply(self, edit: Edit) -> LineChange:
        """Edit the document, and drop state that this invalidates; a bad edit raises BadInput and changes nothing."""
        change = self.document.apply(edit)
        self._edited(change)
        self.cursor = self.document.nearest(follow_cursor(self.cursor, edit))
        self.latest.supersede()
        self.edits += 1
        self.inserted += edit.text
        self.suggestions = tuple(filter(None, (follow(suggestion, edit) for suggestion in self.suggestions)))
        for key, span in self.watched.items():
            self.watched[key] = follow_span(span, edit)
        return change

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

    def _in_source(self, position: Position) -> Position:
        return position if self.cells is None else self.cells.position(self.document, position)

    def _edited(self, change: LineChange) -> None:
        if self.cells is not None:
            self.cells.refresh()
            change = self.cells.change(self.document, change)
        self.planner.edited(change)
        self.surroundings.ring.edited(self.source, change)

    def lose_step(self) -> None:
        """Mark the mirror as out of step: a change of the client was lost."""
        self.out_of_step = True
        self.latest.supersede()

    def watch(self, span: Span) -> int:
        """Follow this span through edits from now on; returns its key in `watched`."""
        key = max(self.watched, default=0) + 1
        self.watched[key] = span
        return key

    @property
    def excluded(self) -> str | None:
        """The reason why its text may not enter a prompt, by the last check of the disk; None if it may."""
        return self.surroundings.verdicts.reason(self.document.uri)

    @property
    def is_in_long_line(self) -> bool:
        """Whether the cursor's line is too long for suggestions."""
        return len(self.document.lines[self.cursor.line]) > LONGEST_LINE

    def look_at(self, cursor: Position) -> None:
        """Record the cursor; a place reached without an edit counts as viewed.

        The first view of a document also counts line 0 as viewed, since its imports are there.
        """
        self.cursor = cursor
        if not self.looked_at:
            self.surroundings.ring.visited(self.source, 0)
            self.looked_at = True
        if not self.inserted:
            self.surroundings.ring.visited(self.source, self._in_source(cursor).line)

    def let_go(self) -> None:
        """Forget the last suggestion of a newly excluded document, and its snippets in other documents' prompts."""
        self.latest.supersede()
        self.suggestions, self.last_exchange, self.balance = (), None, None
        self.surroundings.ring.closed(self.session)


@dataclass(frozen=True, slots=True)
class _Notebook:
    order: list[str] = field(default_factory=list)  # the URIs of all cells
    cells: dict[str, Cells] = field(default_factory=dict)  # by language


class OpenDocuments:
    """All open documents, by their URI."""

    def __init__(self, settings: Settings) -> None:
        self.codec = PositionCodec(PositionEncoding.UTF16)  # LSP's default; the client may have another
        self.settings = settings
        self._surroundings = Surroundings.of_folders(())
        self._open: dict[str, OpenDocument] = {}
        self._notebooks: dict[str, _Notebook] = {}

    def __getitem__(self, uri: str) -> OpenDocument:
        """The open document; BadInput, naming it, if it is not open."""
        try:
            return self._open[uri]
        except KeyError as error:
            raise BadInput(f"{uri} is not open") from error

    def __contains__(self, opened: OpenDocument | None) -> bool:
        """Whether this document is open: neither closed, nor replaced by one with the same URI."""
        return opened is not None and self._open.get(opened.document.uri) is opened

    @property
    def uris(self) -> tuple[str, ...]:
        """The URIs of all open documents."""
        return tuple(self._open)

    def configure(self, settings: Settings) -> None:
        """Use these settings from now on; suggestions made under other settings are dropped."""
        before, self.settings = self.settings, settings
        if before != settings:
            for opened in self._open.values():
                opened.suggestions = ()
        if all(getattr(before, name) == getattr(settings, name) for name in _PLANNING_SETTINGS):
            return
        self._renew_planners()

    def use_folders(self, folders: Sequence[str]) -> None:
        """Use the rules of these workspace folders; the viewed places are forgotten."""
        self._surroundings = Surroundings.of_folders(folders)
        for opened in self._open.values():
            opened.surroundings = self._surroundings
        self._renew_planners()

    def open(self, uri: str, language_id: str, version: int, text: str) -> OpenDocument:
        """Mirror a document, replacing earlier state; snippets are cut from it only after it is viewed."""
        self.close(uri)
        document = Document.from_text(uri, language_id, version, text)
        planner = self._surroundings.planner(document, self.settings)
        opened = self._open[uri] = OpenDocument(document, planner, self._surroundings)
        opened.out_of_step = _is_too_long(document, LineChange(0, 0, len(document.lines)))
        return opened

    def close(self, uri: str) -> None:
        """Forget a document; nothing happens if it is not open."""
        if (closed := self._open.pop(uri, None)) is not None:
            closed.latest.supersede()
            self._surroundings.ring.closed(uri)

    def splice_cells(self, notebook: str, start: int, deleted: int, uris: Sequence[str]) -> None:
        """Replace `deleted` cells of the notebook from `start` on by these documents; BadInput for one not open."""
        known = self._notebooks.setdefault(notebook, _Notebook())
        removed = [self[uri] for uri in known.order[start : start + deleted] if uri in self._open]
        known.order[start : start + deleted] = uris
        for opened in removed:
            opened.cells, opened.planner = None, self._surroundings.planner(opened.document, self.settings)
        cells = [self[uri] for uri in known.order]
        for language_id in {*known.cells, *(cell.document.language_id for cell in cells)}:
            alike = [cell for cell in cells if cell.document.language_id == language_id]
            together = known.cells.setdefault(language_id, Cells(f"{notebook}#{language_id}", language_id))
            together.arrange([cell.document for cell in alike])
            planner = next((cell.planner for cell in alike if cell.cells is together), None)
            planner = planner or self._surroundings.planner(together.document, self.settings)
            for cell in alike:
                cell.cells, cell.planner = together, planner

    def close_notebook(self, notebook: str) -> list[str]:
        """Forget a notebook whose cells are closed; returns the core's sessions of its prompts."""
        sessions = [cells.document.uri for cells in self._notebooks.pop(notebook, _Notebook()).cells.values()]
        for session in sessions:
            self._surroundings.ring.closed(session)
        return sessions

    def change(self, uri: str, version: int, changes: Sequence[Change]) -> None:
        """Apply the client's changes in order, each in the coordinates that the one before it left.

        BadInput if one cannot be applied or the version goes backwards. The document is then out of step: later
        changes are ignored, since their positions are unreliable, until one brings the whole text.
        """
        opened = self[uri]
        whole = max((index for index, change in enumerate(changes) if change.range is None), default=None)
        if opened.out_of_step and whole is None:
            return
        try:
            if whole is None:
                _check_version(opened.document, version)
            opened.out_of_step = False
            for change in changes[whole or 0 :]:
                done = opened.apply(self._edit(opened.document, change))
                opened.out_of_step |= _is_too_long(opened.document, done)
        except BadInput:
            opened.lose_step()
            raise
        opened.document.version = version

    def refuse_change(self, uri: str, reason: str) -> None:
        """Act as `change` does for a bad change: BadInput with this reason, unless already out of step."""
        opened = self[uri]
        if not opened.out_of_step:
            opened.lose_step()
            raise BadInput(reason)

    def _renew_planners(self) -> None:
        planners = {
            opened.session: self._surroundings.planner(opened.source, self.settings) for opened in self._open.values()
        }
        for opened in self._open.values():
            opened.planner = planners[opened.session]

    def _edit(self, document: Document, change: Change) -> Edit:
        if change.range is None:
            return Edit(Position(0, 0), document.end, change.text)
        start, end = change.range
        return Edit(self.codec.decode(document, start), self.codec.decode(document, end), change.text)


def _is_too_long(document: Document, change: LineChange) -> bool:
    """Whether the changed lines are too long for the document to be followed."""
    first, _, added = change
    longest = max(map(len, document.lines[first : first + added]), default=0)
    if longest > _LONGEST_FOLLOWED:
        logger.warning("%s has a line of %d characters: it gets no suggestions", document.uri, longest)
    return longest > _LONGEST_FOLLOWED


def _check_version(document: Document, version: int) -> None:
    if version < document.version:
        raise BadInput(f"version {version} of {document.uri} comes after version {document.version}")
