"""The editing session of one client: suggestions for its open documents, debounced, or the reason why there is none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from lsp_server.core_client.link import LinkStatus
from lsp_server.documents.documents import Position
from lsp_server.filters.cursor_context import CursorContext, Insertion
from lsp_server.filters.ends import stop_rule
from lsp_server.filters.likely import likely_part, whole, without_cut_end
from lsp_server.filters.order import fitted, worth_showing
from lsp_server.suggesting import reasons
from lsp_server.suggesting.explainer import Explainer
from lsp_server.suggesting.open_documents import OpenDocument, OpenDocuments
from lsp_server.suggesting.queries import Query, Suggestion
from lsp_server.suggesting.reasons import Reason
from lsp_server.suggesting.requests import Core, Preparing, PromptCost, RequestSender
from protocol import garbage
from protocol.messages import Completion
from protocol.settings import Settings

_WEIGHT = 0.2  # of the newest observation
_REST_MS = 2000.0  # a longer interval is a rest, and does not count as typing speed


class Pace:
    """Learns how fast the user types and how fast the core answers, as moving averages in milliseconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_call: float | None = None
        self._interval_ms: float | None = None
        self._answer_ms: float | None = None

    def pause_s(self, limit_ms: int) -> float:
        """Record a request now; returns the seconds to wait before it goes to the core.

        If the user types faster than the core answers, most answers are outdated before they arrive. Then the
        pause is as long as an answer takes, but at most `limit_ms`.
        """
        now = self._clock()
        if self._last_call is not None and (interval_ms := (now - self._last_call) * 1000) < _REST_MS:
            self._interval_ms = _average(self._interval_ms, interval_ms)
        self._last_call = now
        if self._interval_ms is None or self._answer_ms is None or self._answer_ms < self._interval_ms:
            return 0.0
        return min(limit_ms, self._answer_ms) / 1000

    def answered(self, milliseconds: float) -> None:
        """Record how long the core took for an answer."""
        self._answer_ms = _average(self._answer_ms, milliseconds)


def _average(before: float | None, value: float) -> float:
    return value if before is None else before + _WEIGHT * (value - before)


# After so many seconds without an edit, prefetching for the next keystrokes starts.
_IDLE_SECONDS = 2.0

# After so many seconds the request has left and the core is at work: the exclusion rules are looked at meanwhile.
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

    `explainer` has the reasons why documents get no suggestions, and calls `on_reason` and `on_refresh`.
    """

    def __init__(
        self,
        core: Core,
        settings: Settings,
        client: str,
        on_cost: Callable[[PromptCost], None],
        on_reason: Callable[[str, Reason | None], None] = lambda *_: None,
        on_refresh: Callable[[str], None] = lambda _: None,
        max_prefill_ms: int = 0,
    ) -> None:
        """`max_prefill_ms` as in `CompletionRequest`."""
        self.documents = OpenDocuments(settings)
        self.explainer = Explainer(self.documents, core, on_reason, on_refresh)
        self._core = core
        self._sender = RequestSender(core, client, on_cost, max_prefill_ms)
        self._pace = Pace()
        self._preparing = Preparing(self.documents)
        self._core_moved = asyncio.Event()
        self._last: OpenDocument | None = None
        self._opening: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None

    @property
    def settings(self) -> Settings:
        """The settings in force; `configure` changes them."""
        return self.documents.settings

    def open(self, uri: str, language_id: str, version: int, text: str) -> OpenDocument:
        """Mirror a document, and prepare for typing in it once it has stayed the newest one for a moment."""
        if self._opening is not None:
            self._opening.cancel()
        opened = self.documents.open(uri, language_id, version, text)
        self._opening = asyncio.get_running_loop().call_later(_OPENING_SECONDS, self.prefetch, opened)
        return opened

    def close(self, uri: str) -> None:
        """Forget a document, and release its prompts in the core; the core evicts them by its ordinary rules."""
        closed = self.documents.close(uri)
        if closed is not None:
            self.explainer.closed(closed)
        if closed is not None and (verdicts := closed.workspace.verdicts).is_allowed(uri):
            verdicts.allow(uri, allowed=False)
            self._sender.forget(closed)
        if self._last not in self.documents:
            self._last = None
        self._sender.release(uri)

    def close_notebook(self, uri: str) -> None:
        """As `close`, for a notebook whose cells are closed."""
        for session in self.documents.close_notebook(uri):
            self._sender.release(session)

    async def suggest(self, opened: OpenDocument, query: Query, *, waits_for_core: bool = True) -> tuple[Insertion, ...]:
        """The suggestions, the best first; none if the document changes before the answer.

        While the core starts and loads its model, the request waits until a newer one or an edit supersedes it; it
        returns nothing at once if `waits_for_core` is false. A repeated request joins the one that is under way.
        """
        self._look_at(opened, query.cursor)
        opened.requests += 1
        now = opened.edits, opened.requests, query.cursor
        opened.outcome, opened.unanswered, opened.invoked = None, None, query.invoked
        insertions: tuple[Insertion, ...] = ()
        try:
            if await self._may_suggest(opened, query, now):
                insertions = self._rest_of_last(opened, query)
                if not insertions and (self._core.ready or waits_for_core):
                    insertions = await self._newest(opened, query) or ()
                elif not insertions:
                    opened.latest.start(partial(self._ahead, opened, query.cursor, typing=True))
        finally:
            if opened.requests == now[1]:
                opened.invoked = False
            if (opened.edits, opened.requests, opened.cursor) == now:
                self._settle(opened, query, is_answered=bool(insertions))
        is_here = opened in self.documents and opened.edits == now[0]
        return insertions if is_here and opened.excluded is None else ()  # the rules may have changed meanwhile

    def _settle(self, opened: OpenDocument, query: Query, *, is_answered: bool) -> None:
        """After the newest request: note what left it unanswered, and compute the rest of a prompt that was a short one."""
        if not is_answered and (opened.lacks_prompt or self.explainer.is_in_the_way(opened)):
            opened.unanswered = opened.edits, opened.cursor
        if opened.lacks_prompt and not opened.latest.busy and self._answers(opened, query):
            opened.latest.start(partial(self._ahead, opened, query.cursor, typing=True))

    async def _may_suggest(self, opened: OpenDocument, query: Query, now: tuple[int, int, Position]) -> bool:
        """Whether the request may be answered, and is still the newest of its document once the rules are checked."""
        if not self._answers(opened, query):
            return False
        if not query.on_one_line:
            opened.outcome = reasons.POPUP_ENTRY
            return False
        if not await self._is_allowed(opened) or (opened.edits, opened.requests, opened.cursor) != now:
            return False
        return opened in self.documents  # else closed meanwhile

    def _newest(self, opened: OpenDocument, query: Query) -> Coroutine[Any, Any, tuple[Insertion, ...] | None]:
        """Ask the core, or join the same request that is under way; None if something newer supersedes it."""
        if opened.latest.is_for(query):
            return opened.latest.join()
        pause_s = self._pace.pause_s(self.settings.debounce_ms) if self._core.ready else 0.0
        return opened.latest.run(partial(self._ask, opened, query, pause_s), query)

    def prefetch(self, opened: OpenDocument, cursor: Position | None = None) -> None:
        """Make the prompt at the cursor, or at the last one, resident in the background, if the user may type there.

        `Preparing` says where. A request for the same place goes on undisturbed; one for another place is superseded.
        Nothing happens if the document is closed.
        """
        if opened not in self.documents or (opened.latest.busy and cursor in (None, opened.cursor)):
            return
        self._look_at(opened, cursor or opened.cursor)
        if self._answers(opened):
            opened.latest.start(partial(self._ahead, opened, opened.cursor))
        else:
            self.explainer.report(opened)

    def prefetch_suggestion(self, opened: OpenDocument, cursor: Position) -> None:
        """Compute the suggestion at `cursor` before the client's request for it."""
        query = Query(cursor)
        self._look_at(opened, cursor)
        if self._core.ready and self._answers(opened) and not opened.latest.is_for(query):
            opened.latest.start(partial(self._ask, opened, query), query)

    def core_changed(self, status: LinkStatus) -> None:
        """When the core comes up, make the prompt of the last document resident, which also loads the model."""
        before, self.explainer.status = self.explainer.status.state, status
        self._core_moved.set()
        self._core_moved.clear()
        self.explainer.report_all(self._last)
        came_up = before in ("starting", "failed", "stopped") and status.state in ("unloaded", "loading", "ready")
        if came_up and self._last is not None:
            self.prefetch(self._last)

    def prefilled(self, session: str, tokens: tuple[int, int] | None) -> None:
        """The core computes the prompt of this session: so many tokens of so many; None when that has ended."""
        if self._last in self.documents and self._last is not None and self._last.session == session:
            self.explainer.reading(self._last, tokens)

    def configure(self, settings: Settings) -> None:
        self.documents.configure(settings)
        self.explainer.report_all(self._last)

    def snooze(self, seconds: float) -> None:
        """Suggest only on request for so long; infinite for the rest of the session, 0 ends it."""
        self.explainer.snooze(seconds, partial(self.snooze, 0))
        self.explainer.report_all(self._last)

    def allow(self, opened: OpenDocument) -> None:
        """Let the document into its own prompts, in spite of the rules, until it is closed."""
        opened.workspace.verdicts.allow(opened.document.uri)
        self.explainer.report(opened)

    def switch(self, opened: OpenDocument, switch: reasons.Switch) -> None:
        """The client suggests in the document, or does not, for this cause."""
        opened.switch = switch
        self.explainer.report(opened)

    def _look_at(self, opened: OpenDocument, cursor: Position) -> None:
        """Record where the user is, and restart the timer of the work at rest."""
        opened.look_at(cursor)
        self._last = opened
        for timer in (self._opening, self._idle):
            if timer is not None:
                timer.cancel()
        self._idle = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._at_idle, opened, opened.edits)

    def _at_idle(self, opened: OpenDocument, edits: int) -> None:
        """Re-lay the anchor of a long increment by a prefetch, and collect garbage."""
        garbage.collect_what_is_new()
        self._preparing.rest()
        if opened.edits != edits or opened.latest.busy or opened.excluded or not self._answers(opened):
            return
        if opened.needs_anchor(opened.cursor):  # gathered for, and laid, by the prefetch
            opened.latest.start(partial(self._ahead, opened, opened.cursor))

    def _answers(self, opened: OpenDocument, query: Query | None = None) -> bool:
        """Whether this request, or else the next automatic one, may get a suggestion; the exclusion rules apart."""
        if opened not in self.documents or self.explainer.switched_off(opened) is not None:
            return False
        return (query is not None and query.invoked) or self.explainer.waits_for_user(opened) is None

    async def _is_allowed(self, opened: OpenDocument) -> bool:
        """Whether no rule excludes the document; checks the disk if the last check is too old."""
        await self._sender.look_at_rules(opened)
        return opened.excluded is None

    def _rest_of_last(self, opened: OpenDocument, query: Query) -> tuple[Insertion, ...]:
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

    async def _ask(self, opened: OpenDocument, query: Query, pause_s: float = 0.0) -> tuple[Insertion, ...]:
        """The core's suggestions, after the debounce, or after the core has started and loaded its model."""
        was_ready = self._core.ready
        try:
            async with asyncio.timeout(None if was_ready else _LOADING_SECONDS):
                if not was_ready:
                    self.explainer.report(opened)
                    while not self._core.ready and self.explainer.status.state in ("starting", "stopped"):
                        await self._core_moved.wait()
                elif pause_s:
                    await asyncio.sleep(pause_s)
                if not await self._is_allowed(opened):
                    return ()
                since, is_ready = time.perf_counter(), self._core.ready
                plan = opened.plan(query.cursor)
                place = query.place(opened.document, plan.gap, multi_line=self.settings.multi_line)
                request = self._sender.request(opened, query, plan, self.settings, stop_rule(place))
                meanwhile = asyncio.get_running_loop().call_later(_MEANWHILE_SECONDS, self._sender.renew_rules, opened)
                try:
                    completion = await self._sender.complete(opened, query.cursor, plan, request)
                finally:
                    meanwhile.cancel()
        except TimeoutError:
            opened.outcome = reasons.too_late(_LOADING_SECONDS)
            return ()
        if completion is None:
            return ()
        if is_ready:
            self._pace.answered((time.perf_counter() - since) * 1000)
        return self._remember(opened, query, place, completion)

    def _remember(
        self, opened: OpenDocument, query: Query, place: CursorContext, completion: Completion
    ) -> tuple[Insertion, ...]:
        """Filter the completions and remember them as suggestions; returns the suggestions, none if held back."""
        shorten = likely_part if self.settings.shorten_unlikely and not query.invoked else whole
        likely = shorten(completion)
        percent, limit = likely.percent, self.settings.hold_back_percent
        unlikely = not query.invoked and percent is not None and percent < limit
        ending = query.ending(opened.document)
        shown: dict[str, Insertion] = {}
        suggestions: list[Suggestion] = []
        texts = [(likely.text, likely.is_cut)]
        texts += [(without_cut_end(other), other.finish_reason == "length") for other in completion.alternatives]
        fault, held = "", False
        for text, is_cut in texts:
            worth = worth_showing(text, place, is_cut=is_cut)
            fit = fitted(worth.insertion.text, place, is_cut=is_cut)
            insertion, fault = fit.insertion, fault or worth.fault or fit.fault
            held = unlikely or (not query.invoked and limit > 0 and not likely.interrupts(insertion.text))
            if not insertion.text or insertion.text in shown:
                continue
            shown[insertion.text] = query.item(insertion)
            if ending is not None:
                rest = Insertion(ending + insertion.text, insertion.replaced)
                text = ending + worth.insertion.text
                suggestions.append(Suggestion(query.cursor, query.cursor, text, rest, held, place.hidden, is_cut))
        opened.suggestions = tuple(suggestions)
        if not shown:
            opened.outcome = reasons.nothing_left(f"it {fault}.") if likely.text.strip() else reasons.NOTHING_PREDICTED
        elif unlikely and percent is not None:
            opened.outcome = reasons.unlikely(percent, limit, opened.document.uri)
        elif held:
            opened.outcome = reasons.too_little(opened.document.uri)
        return () if held else tuple(shown.values())

    async def _ahead(self, opened: OpenDocument, cursor: Position, *, typing: bool = False) -> None:
        """Gather for the next prompt at the cursor, and make it resident if the user is `typing` there, or may."""
        is_allowed = await self._is_allowed(opened)
        self.explainer.report(opened)
        if not is_allowed or opened not in self.documents:  # closed meanwhile
            return
        await opened.gather(cursor, self.settings)
        if typing or self._preparing.allows(opened):
            await self._sender.prefetch(opened, cursor, self.settings)
