"""The editing session of one client: its open documents, and suggestions for them; the latest request wins."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from lsp_server.core.link import LinkState
from lsp_server.editing.documents import Position
from lsp_server.filters.cursor_context import CursorContext, Insertion
from lsp_server.filters.order import fitted, worth_showing
from lsp_server.filters.stop_rules import stop_rule
from lsp_server.filters.whole_statements import drop_cut_line
from lsp_server.suggesting.debounce import Pace
from lsp_server.suggesting.last_suggestion import Suggestion, suggestion_at
from lsp_server.suggesting.open_document import OpenDocument
from lsp_server.suggesting.open_documents import OpenDocuments
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import Core, PromptCost, RequestSender
from protocol import garbage
from protocol.messages import Completion, StopRule
from protocol.settings import Settings

# After so many seconds without an edit, ahead work for the next keystrokes starts.
_IDLE_SECONDS = 2.0

# After so many seconds the request has left and the core is at work: the filters' values are computed meanwhile.
_MEANWHILE_SECONDS = 0.001

# A document that stays the newest for so many seconds counts as viewed: an editor that restores a session, or previews
# a change of many files, opens the next one sooner.
_OPENING_SECONDS = 0.3

# A request waits for so many seconds at most while the core starts and loads its model.
_LOADING_SECONDS = 120.0


class EditingSession:
    """The documents that a client has open, and the suggestions for them.

    `client` is its name in the core and unique there. A document that is opened through `documents`, not `open`, is
    not prepared for typing.

    The session calls `on_excluded` with the viewed document's URI and the reason of its exclusion; with None for
    the reason when the next one, or the same one later, is not excluded.
    """

    def __init__(
        self,
        core: Core,
        settings: Settings,
        client: str,
        on_cost: Callable[[PromptCost], None],
        on_excluded: Callable[[str, str | None], None] = lambda *_: None,
        idle_s: float = _IDLE_SECONDS,
        opening_s: float = _OPENING_SECONDS,
        loading_s: float = _LOADING_SECONDS,
    ) -> None:
        self.documents = OpenDocuments(settings)
        self._idle_s, self._opening_s, self._loading_s = idle_s, opening_s, loading_s
        self._on_excluded = on_excluded
        self._core = core
        self._sender = RequestSender(core, client, on_cost)
        self._pace = Pace()
        self._core_state: LinkState = "stopped"
        self._core_moved = asyncio.Event()
        self._looked_at: tuple[str, str | None] = "", None  # the document, and why it is excluded
        self._last: OpenDocument | None = None
        self._opening: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None

    @property
    def settings(self) -> Settings:
        """The settings in force; `documents.configure` changes them."""
        return self.documents.settings

    def open(self, uri: str, language_id: str, version: int, text: str) -> OpenDocument:
        """Mirror a document, and prepare for typing in it once it has stayed the newest one for a moment."""
        if self._opening is not None:
            self._opening.cancel()
        opened = self.documents.open(uri, language_id, version, text)
        self._opening = asyncio.get_running_loop().call_later(self._opening_s, self.look_ahead, opened)
        return opened

    def close(self, uri: str) -> None:
        """Forget a document, and release its prompts in the core; the core evicts them by its ordinary rules."""
        self.documents.close(uri)
        if self._last not in self.documents:
            self._last = None
        self._sender.release(uri)

    def close_notebook(self, uri: str) -> None:
        """As `close`, for a notebook whose cells are closed."""
        for session in self.documents.close_notebook(uri):
            self._sender.release(session)

    async def suggest(
        self, opened: OpenDocument, query: Query, *, waits_for_core: bool = True
    ) -> tuple[Insertion, ...]:
        """The suggestions, the best first; none if the document changes before the answer.

        While the core starts and loads its model, the request waits until a newer one or an edit supersedes it; it
        returns nothing at once if `waits_for_core` is false. A repeated request joins the one that is under way.
        """
        self._look_at(opened, query.cursor)
        opened.requests += 1
        now = edits, _, _ = opened.edits, opened.requests, query.cursor
        if not self._is_enabled(opened) or not query.on_one_line:
            return ()
        if not await self._is_allowed(opened) or (opened.edits, opened.requests, opened.cursor) != now:
            return ()
        if at_hand := self._at_hand(opened, query):
            return at_hand
        if not self._core.ready and not waits_for_core:
            opened.latest.start(partial(self._ahead, opened, query.cursor))
            return ()
        if opened.latest.is_for(query):
            insertions = await opened.latest.join()
        else:
            insertions = await opened.latest.run(partial(self._ask_in_time, opened, query), query)
        return insertions or () if opened.edits == edits else ()

    def look_ahead(self, opened: OpenDocument, cursor: Position | None = None) -> None:
        """Make the prompt at the cursor, or at the last one, resident in the background.

        A request for the same place goes on undisturbed; one for another place is superseded. Nothing happens if the
        document is closed.
        """
        if opened not in self.documents or (opened.latest.busy and cursor in (None, opened.cursor)):
            return
        self._look_at(opened, cursor or opened.cursor)
        if self._is_enabled(opened):
            opened.latest.start(partial(self._ahead, opened, opened.cursor))

    def suggest_ahead(self, opened: OpenDocument, cursor: Position) -> None:
        """Compute the suggestion at `cursor` before the client's request for it."""
        query = Query(cursor)
        self._look_at(opened, cursor)
        if self._core.ready and self._is_enabled(opened) and not opened.latest.is_for(query):
            opened.latest.start(partial(self._ask, opened, query), query)

    def core_changed(self, state: LinkState) -> None:
        """When the core comes up, make the prompt of the last document resident, which also loads the model."""
        came_up = self._core_state in ("starting", "failed", "stopped") and state in ("unloaded", "loading", "ready")
        self._core_state = state
        self._core_moved.set()
        self._core_moved.clear()
        if came_up and self._last is not None:
            self.look_ahead(self._last)

    def _look_at(self, opened: OpenDocument, cursor: Position) -> None:
        """Record where the user is, and restart the timer of the work at rest."""
        opened.look_at(cursor)
        self._last = opened
        for timer in (self._opening, self._idle):
            if timer is not None:
                timer.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._at_idle, opened, opened.edits)

    def _at_idle(self, opened: OpenDocument, edits: int) -> None:
        """Re-lay the anchor of a long increment as ahead work, and collect garbage."""
        garbage.collect_what_is_new()
        if opened.edits != edits or opened.latest.busy or opened.excluded or not self._is_enabled(opened):
            return
        if opened.plan(opened.cursor, ahead=True).relaid:
            opened.latest.start(partial(self._ahead, opened, opened.cursor))

    def _is_enabled(self, opened: OpenDocument) -> bool:
        """Whether the document's cursor may get a suggestion, apart from the exclusion rules."""
        disabled = opened.document.language_id in self.settings.disabled_languages
        return opened in self.documents and not (disabled or opened.out_of_step or opened.is_in_long_line)

    async def _is_allowed(self, opened: OpenDocument) -> bool:
        """Whether no rule excludes the document; checks the disk if the last check is too old."""
        await self._sender.look_at_rules(opened)
        before, self._looked_at = self._looked_at, (opened.document.uri, opened.excluded)
        if before != self._looked_at and (before[1], opened.excluded) != (None, None):
            self._on_excluded(*self._looked_at)
        return opened.excluded is None

    def _at_hand(self, opened: OpenDocument, query: Query) -> tuple[Insertion, ...]:
        """The rests of the last suggestions, if the user types their text; the core computes nothing.

        An explicit request returns them only if there are several; a single one needs alternatives from the core.
        """
        insertions = tuple(dict.fromkeys(query.rests(opened.document, opened.suggestions)))
        if not query.invoked:
            insertions = insertions[:1]
        elif len(insertions) == 1 and self.settings.alternatives:
            return ()
        if insertions:
            opened.latest.supersede()
            self._sender.typed(opened, query.cursor)
        return insertions

    async def _ask_in_time(self, opened: OpenDocument, query: Query) -> tuple[Insertion, ...]:
        """As `_ask`, after the debounce, or after the core has started and loaded."""
        if self._core.ready:
            return await self._ask(opened, query, self._pace.pause_s(self.settings.debounce_ms))
        try:
            async with asyncio.timeout(self._loading_s):
                while not self._core.ready and self._core_state in ("starting", "stopped"):
                    await self._core_moved.wait()
                return await self._ask(opened, query)
        except TimeoutError:
            return ()

    async def _ask(self, opened: OpenDocument, query: Query, pause_s: float = 0.0) -> tuple[Insertion, ...]:
        if pause_s:
            await asyncio.sleep(pause_s)
        if not await self._is_allowed(opened):
            return ()
        since, was_ready = time.perf_counter(), self._core.ready
        place = query.place(opened.document, multi_line=self.settings.multi_line, earlier=opened.balance)
        stop = stop_rule(place.before, place.after, place.language_id, multi_line=place.multi_line)
        if stop.indent is not None:
            stop = replace(stop, closes=place.statement.wants_closer)
        meanwhile = asyncio.get_running_loop().call_later(_MEANWHILE_SECONDS, self._prepare, opened, place, stop)
        try:
            completion = await self._sender.suggest(opened, query, self.settings, stop)
        finally:
            meanwhile.cancel()
        if completion is None:
            return ()
        if was_ready:
            self._pace.answered((time.perf_counter() - since) * 1000)
        return self._remember(opened, query, place, completion)

    def _prepare(self, opened: OpenDocument, place: CursorContext, stop: StopRule) -> None:
        """Compute the filters' values and renew the exclusion verdicts while the core is at work."""
        place.work_out(indents=stop.indent is not None or not place.before.strip())
        opened.balance = place.statement.balance
        self._sender.renew_rules(opened)

    def _remember(
        self, opened: OpenDocument, query: Query, place: CursorContext, completion: Completion
    ) -> tuple[Insertion, ...]:
        """Filter the completions and remember them as suggestions; returns the suggestions, none if held back."""
        held = not query.invoked and self._is_unlikely(completion)
        ending = query.ending(opened.document)
        shown: dict[str, Insertion] = {}
        suggestions: list[Suggestion] = []
        first = drop_cut_line(completion.text) if completion.finish_reason == "length" else completion.text
        for text in (first, *completion.alternatives):
            worth = worth_showing(text, place)
            insertion = fitted(worth, place)
            if not insertion.text or insertion.text in shown:
                continue
            shown[insertion.text] = query.item(insertion)
            if ending is not None:
                rest = Insertion(ending + insertion.text, insertion.replaced)
                suggestions.append(suggestion_at(query.cursor, ending + worth, rest, held=held))
        opened.suggestions = tuple(suggestions)
        return () if held else tuple(shown.values())

    def _is_unlikely(self, completion: Completion) -> bool:
        percent, logprob = self.settings.hold_back_percent, completion.mean_logprob
        return logprob is not None and math.exp(logprob) * 100 < percent

    async def _ahead(self, opened: OpenDocument, cursor: Position) -> None:
        if await self._is_allowed(opened):
            await opened.gather(cursor, self.settings)
            await self._sender.look_ahead(opened, cursor, self.settings)
