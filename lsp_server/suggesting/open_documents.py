"""The client's open documents and notebooks: their mirrors, cursors and suggestions, and the state that they share."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lsp_server.context.gathering import Gathering
from lsp_server.context.index.database import index_file
from lsp_server.context.snippet_pool import SnippetPool
from lsp_server.documents.documents import Cells, Document, Edit, LineChange, Position, Replacement, follow_cursor, trimmed
from lsp_server.documents.positions import ClientPosition, PositionCodec, PositionEncoding, shown_path, split_uri
from lsp_server.exclusion.exclusion import Exclusion, Verdicts, is_usable
from lsp_server.exclusion.ignore_files import Verdict
from lsp_server.filters.cursor_context import Insertion
from lsp_server.prompts.anchors import WindowBudget
from lsp_server.prompts.planner import Plan, PromptPlanner
from lsp_server.suggesting.latest import Latest
from lsp_server.suggesting.queries import Suggestion, follow
from lsp_server.suggesting.reasons import Reason, Switch
from protocol.errors import BadInput
from protocol.messages import Completion, CompletionRequest
from protocol.settings import ContextSource, Settings


@dataclass(frozen=True, slots=True)
class EditorWorkspace:
    """The exclusion verdicts for some workspace folders, and the pool of lines viewed and edited in them."""

    verdicts: Verdicts
    pool: SnippetPool
    gathering: Gathering
    folders: tuple[Path, ...] = ()

    @classmethod
    def of_folders(cls, folders: Sequence[str], now: Callable[[], float] = time.monotonic) -> EditorWorkspace:
        """The workspace of these folders' URIs, with nothing viewed yet."""
        verdicts = Verdicts(Exclusion(folders, now), now)
        pool = SnippetPool(verdicts.is_excluded, lambda uri: shown_path(uri, folders))
        paths = tuple(Path(path) for path in (split_uri(uri).path for uri in folders) if is_usable(path))
        return cls(verdicts, pool, Gathering(pool, verdicts, {path: index_file(path) for path in paths}), paths)

    def planner(self, document: Document, settings: Settings) -> PromptPlanner:
        """The planner of a document's prompts, with snippets of other documents if the settings enable them."""
        budget = WindowBudget(settings.prefix_tokens, settings.suffix_tokens)
        sources = enabled_sources(settings)
        return PromptPlanner(
            document,
            budget,
            settings.strategy,
            context=lambda budget, adds: self.pool.context_for(
                document.uri, int(settings.other_files_tokens * budget.chars_per_token), sources, adds=adds
            ),
            is_excluded=self.verdicts.is_excluded,
        )

    async def gather(self, document: Document, cursor: Position, settings: Settings) -> None:
        """Let the sources prepare proposals for a prompt at the cursor; call it where no user waits."""
        await self.gathering.gather(document, cursor, enabled_sources(settings))


def enabled_sources(settings: Settings) -> tuple[ContextSource, ...]:
    """The sources that the settings enable; none if text of other files is off."""
    return settings.context_sources if settings.other_files else ()


@dataclass(slots=True)
class OpenDocument:
    """One open document.

    `edits` counts the applied edits, independent of the client's versions: an answer is outdated when the count has
    grown. `inserted_chars` counts the characters that edits inserted since the core last answered for this document,
    prefetches included. `cursor` follows the edits.
    """

    document: Document
    source: Document
    """What prompts are cut from: the document itself, or for a cell all cells of its language."""
    planner: PromptPlanner
    workspace: EditorWorkspace
    latest: Latest[tuple[Insertion, ...]] = field(default_factory=Latest)
    edits: int = 0
    edited_at: float = -math.inf  # by time.monotonic()
    inserted_chars: int = 0
    cursor: Position = field(default=Position(0, 0))
    suggestions: tuple[Suggestion, ...] = ()  # the last suggestion, and its alternatives
    out_of_step: bool = False  # a change failed, or a line is too long: only the whole text recovers from that
    last_exchange: tuple[CompletionRequest, Completion] | None = None  # with the core, for a suggestion
    lacks_prompt: bool = False  # the core answered last from a short prompt, and the whole one is not resident yet
    cells: Cells | None = None  # the cells of its language in its notebook, which share a planner
    looked_at: bool = False  # the user has viewed it, rather than only opened it
    requests: int = 0  # for suggestions, of which only the newest is answered
    invoked: bool = False  # the user invoked the request that is under way
    switch: Switch = ""  # what switches suggestions off in the client
    outcome: Reason | None = None  # why the last request got no suggestion
    reported: Reason | None = None  # what the client knows
    unanswered: tuple[int, Position] | None = None  # `edits` and cursor of a request that an obstacle left unanswered

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
        self.workspace.pool.edited(self.source, in_source.first)
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

    def plan(self, cursor: Position, *, prefetch: bool = False) -> Plan:
        """The prompt for a cursor, as `PromptPlanner.plan` makes it."""
        self.document.check(cursor)
        return self.planner.plan(self._in_source(cursor), prefetch=prefetch)

    async def gather(self, cursor: Position, settings: Settings) -> None:
        """Prepare the snippets of the next prompt, if the prompt at this cursor needs a new anchor."""
        if self.needs_anchor(cursor):
            await self.workspace.gather(self.source, self._in_source(cursor), settings)

    def needs_anchor(self, cursor: Position) -> bool:
        """Whether the prefetched prompt at this cursor needs a new anchor."""
        return not self.planner.holds(self._in_source(cursor))

    def _in_source(self, position: Position) -> Position:
        return position if self.cells is None else self.cells.position(self.document, position)

    def mark_out_of_step(self) -> None:
        """Mark the mirror as out of step: a change of the client was lost."""
        self.out_of_step = True
        self.latest.supersede()

    @property
    def excluded(self) -> Verdict | None:
        """Why its text may not enter its own prompts, by the last check of the disk; None if it may."""
        return self.workspace.verdicts.own(self.document.uri)

    def look_at(self, cursor: Position) -> None:
        """Record the cursor; a place reached without an edit counts as viewed.

        The first view of a document also counts line 0 as viewed, since its imports are there.
        """
        self.cursor = cursor
        if not self.looked_at:
            self.workspace.pool.visited(self.source, 0)
            self.looked_at = True
        if not self.inserted_chars:
            self.workspace.pool.visited(self.source, self._in_source(cursor).line)


logger = logging.getLogger(__name__)

# A document with a line of more code points is not followed: every edit of the line would copy it.
_LONGEST_FOLLOWED = 10_000_000

# More changes of one message, as of a replacement in the whole document, are followed as one edit.
_MOST_FOLLOWED = 200

_PLANNING_SETTINGS = (*("prefix_tokens", "suffix_tokens", "strategy"), *("other_files", "other_files_tokens", "context_sources"))


@dataclass(frozen=True, slots=True)
class Change:
    """One change from the client; without a range it is the whole text."""

    text: str
    range: tuple[ClientPosition, ClientPosition] | None = None


@dataclass(frozen=True, slots=True)
class _Notebook:
    order: list[str] = field(default_factory=list)  # the URIs of all cells
    cells: dict[str, Cells] = field(default_factory=dict)  # by language


class OpenDocuments:
    """All open documents, by their URI. `on_change` is called with a document and the client's applied edits."""

    def __init__(self, settings: Settings) -> None:
        self.codec = PositionCodec(PositionEncoding.UTF16)  # LSP's default; the client may have another
        self.settings = settings
        self.on_change: Callable[[OpenDocument, Sequence[Replacement]], None] = lambda *_: None
        self._workspace = EditorWorkspace.of_folders(())
        self._folders: tuple[str, ...] = ()  # URIs
        self._workspace.verdicts.use(ignored_are_off=settings.ignored_files == "off")
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

    def __iter__(self) -> Iterator[OpenDocument]:
        return iter(self._open.values())

    @property
    def uris(self) -> tuple[str, ...]:
        return tuple(self._open)

    @property
    def folders(self) -> tuple[Path, ...]:
        """The workspace folders on this machine's disks."""
        return self._workspace.folders

    def shown_path(self, uri: str) -> str:
        """How prompts name a document."""
        return shown_path(uri, self._folders)

    def configure(self, settings: Settings) -> None:
        """Use these settings from now on; suggestions made under other settings are dropped."""
        before, self.settings = self.settings, settings
        self._workspace.verdicts.use(ignored_are_off=settings.ignored_files == "off")
        if before != settings:
            for opened in self._open.values():
                opened.suggestions = ()
        if all(getattr(before, name) == getattr(settings, name) for name in _PLANNING_SETTINGS):
            return
        self._renew_planners()

    def use_folders(self, folders: Sequence[str]) -> None:
        """Use the rules of these workspace folders; the viewed places are forgotten."""
        before, self._workspace = self._workspace, EditorWorkspace.of_folders(folders)
        self._folders = tuple(folders)
        self._workspace.verdicts.inherit(before.verdicts)
        for opened in self._open.values():
            opened.workspace = self._workspace
        self._renew_planners()

    def open(self, uri: str, language_id: str, version: int, text: str) -> OpenDocument:
        """Mirror a document, replacing earlier state; snippets are cut from it only after it is viewed."""
        self.close(uri)
        document = Document.from_text(uri, language_id, version, text)
        planner = self._workspace.planner(document, self.settings)
        opened = self._open[uri] = OpenDocument(document, document, planner, self._workspace)
        opened.out_of_step = _is_too_long(document, LineChange(0, 0, len(document.lines)))
        for notebook, known in self._notebooks.items():  # a cell that is opened anew takes the place that it had
            if uri in known.order and all(cell in self._open for cell in known.order):
                self.splice_cells(notebook, known.order.index(uri), 1, [uri])
        return opened

    def close(self, uri: str) -> OpenDocument | None:
        """Forget a document, and return it; nothing happens if it is not open."""
        if (closed := self._open.pop(uri, None)) is not None:
            closed.latest.supersede()
            self._workspace.pool.closed(uri)
        return closed

    def splice_cells(self, notebook: str, start: int, deleted: int, uris: Sequence[str]) -> None:
        """Replace `deleted` cells of the notebook from `start` on by these documents; BadInput for one not open."""
        known = self._notebooks.setdefault(notebook, _Notebook())
        removed = [self[uri] for uri in known.order[start : start + deleted] if uri in self._open]
        known.order[start : start + deleted] = uris
        for opened in removed:
            opened.cells, opened.source = None, opened.document
            opened.planner = self._workspace.planner(opened.document, self.settings)
        cells = [self[uri] for uri in known.order]
        for language_id in {*known.cells, *(cell.document.language_id for cell in cells)}:
            alike = [cell for cell in cells if cell.document.language_id == language_id]
            together = known.cells.setdefault(language_id, Cells(f"{notebook}#{language_id}", language_id))
            change = together.arrange([cell.document for cell in alike])
            planner = next((cell.planner for cell in alike if cell.cells is together), None)
            if planner is None:
                planner = self._workspace.planner(together.document, self.settings)
            else:
                planner.edited(change)
            for cell in alike:
                cell.cells, cell.source, cell.planner = together, together.document, planner

    def close_notebook(self, notebook: str) -> list[str]:
        """Forget a notebook whose cells are closed; returns the core's sessions of its prompts."""
        sessions = [cells.document.uri for cells in self._notebooks.pop(notebook, _Notebook()).cells.values()]
        for session in sessions:
            self._workspace.pool.closed(session)
        return sessions

    def change(self, uri: str, version: int, changes: Sequence[Change]) -> None:
        """Apply the client's changes in order, each in the coordinates that the one before it left.

        Very many changes count as one edit of all text between them.

        BadInput if one cannot be applied or the version goes backwards. The document is then out of step: later
        changes are ignored, since their positions are unreliable, until one brings the whole text.
        """
        opened, replacements = self[uri], list[Replacement]()
        whole = max((index for index, change in enumerate(changes) if change.range is None), default=None)
        if opened.out_of_step and whole is None:
            return
        try:
            if whole is None:
                _check_version(opened.document, version)
            opened.out_of_step = False
            for edit in self._edits(opened.document, changes[whole or 0 :]):
                replacement, lines = opened.apply(edit)
                replacements.append(replacement)
                opened.out_of_step |= _is_too_long(opened.document, lines)
        except BadInput:
            opened.mark_out_of_step()
            raise
        opened.document.version = version
        self.on_change(opened, replacements)

    def refuse_change(self, uri: str, reason: str) -> None:
        """Act as `change` does for a bad change: BadInput with this reason, unless already out of step."""
        opened = self[uri]
        if not opened.out_of_step:
            opened.mark_out_of_step()
            raise BadInput(reason)

    def _renew_planners(self) -> None:
        planners = {opened.session: self._workspace.planner(opened.source, self.settings) for opened in self._open.values()}
        for opened in self._open.values():
            opened.planner = planners[opened.session]

    def _edits(self, document: Document, changes: Sequence[Change]) -> Iterator[Edit]:
        """The edits to apply, each read from the document as the one before left it."""
        if len(changes) <= _MOST_FOLLOWED:
            for change in changes:
                yield self._edit(document, change)
            return
        changed = replace(document, lines=list(document.lines))
        for change in changes:
            changed.apply(self._edit(changed, change))
        whole = Edit(Position(0, 0), document.end, changed.text)
        yield trimmed(Replacement(whole, document.text)).edit

    def _edit(self, document: Document, change: Change) -> Edit:
        if change.range is None:
            return Edit(Position(0, 0), document.end, change.text)
        start, end = change.range
        if end < start:
            raise BadInput(f"the edit of {document.uri} ends at {tuple(end)} before its start {tuple(start)}")
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
