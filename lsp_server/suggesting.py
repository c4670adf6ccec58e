"""From a cursor in an open document to suggestions: what is at hand first, then the core; the latest request wins."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from functools import partial

from msgspec.structs import replace

from lsp_server.asking import Asker, Core, Cost
from lsp_server.core_link import LinkState
from lsp_server.documents import Position
from lsp_server.manners.order import fitted, worth_saying
from lsp_server.manners.place import Insertion, Place
from lsp_server.offers import Offer, offer_at, rest_of
from lsp_server.open_documents import OpenDocument
from lsp_server.pace import Pace
from lsp_server.queries import Query
from lsp_server.stop_rules import stop_rule
from protocol import garbage
from protocol.messages import Completion, StopRule
from protocol.settings import Settings

# After so many seconds without an edit, what the next keystrokes would have to compute is computed.
_IDLE_SECONDS = 2.0

# After so many seconds the request has left, and the core is at work: what will be needed soon is worked out then.
_MEANWHILE_SECONDS = 0.001


class Suggester:
    """Answers for all documents. `session_prefix` tells a language server's documents from those of other clients."""

    def __init__(
        self,
        core: Core,
        settings: Settings,
        session_prefix: str,
        on_cost: Callable[[Cost], None],
        idle_s: float = _IDLE_SECONDS,
    ) -> None:
        self.settings = settings
        self._idle_s = idle_s
        self._core = core
        self._asker = Asker(core, session_prefix, on_cost)
        self._pace = Pace()
        self._core_state: LinkState = "stopped"
        self._last: OpenDocument | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def suggest(self, opened: OpenDocument, query: Query) -> tuple[Insertion, ...]:
        """What to show, the best first; nothing also where the document changes before it is known.

        Where the core would have to load its model first, it is set to work, and nobody waits. A request for what
        is being computed already joins it.
        """
        self._look_at(opened, query.cursor)
        if not self._wanted(opened) or not query.on_one_line:
            return ()
        if at_hand := self._at_hand(opened, query):
            return at_hand
        if not self._core.ready:
            opened.latest.start(partial(self._ahead, opened, query.cursor))
            return ()
        edits = opened.edits
        if opened.latest.is_for(query):
            insertions = await opened.latest.join()
        else:
            pause_s = self._pace.pause_s(self.settings.debounce_ms)
            insertions = await opened.latest.run(partial(self._ask, opened, query, pause_s), query)
        return insertions or () if opened.edits == edits else ()

    def look_ahead(self, opened: OpenDocument, cursor: Position | None = None) -> None:
        """Make the prompt at the cursor, or at the last one, resident in the background.

        A request for the same place goes on undisturbed; one for another place is superseded.
        """
        if opened.latest.busy and cursor in (None, opened.cursor):
            return
        self._look_at(opened, cursor or opened.cursor)
        if self._wanted(opened):
            opened.latest.start(partial(self._ahead, opened, opened.cursor))

    def suggest_ahead(self, opened: OpenDocument, cursor: Position) -> None:
        """Compute what the client will ask for next, when it is known before the client asks."""
        query = Query(cursor)
        self._look_at(opened, cursor)
        if self._core.ready and self._wanted(opened) and not opened.latest.is_for(query):
            opened.latest.start(partial(self._ask, opened, query), query)

    def core_changed(self, state: LinkState) -> None:
        """When the core comes up, make the prompt of the last document resident, which also loads the model."""
        came_up = self._core_state in ("starting", "failed", "stopped") and state in ("unloaded", "loading", "ready")
        self._core_state = state
        if came_up and self._last is not None:
            self.look_ahead(self._last)

    def release(self, uri: str) -> None:
        """Let go of a closed document, here and in the core."""
        if self._last is not None and self._last.document.uri == uri:
            self._last = None
            if self._idle is not None:
                self._idle.cancel()
        self._asker.release(uri)

    def _look_at(self, opened: OpenDocument, cursor: Position) -> None:
        """The user is here now; what is not to be computed before they type on waits until they rest."""
        opened.look_at(cursor)
        self._last = opened
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._at_idle, opened, opened.edits)

    def _at_idle(self, opened: OpenDocument, edits: int) -> None:
        """Lay a long increment's anchor anew while nobody waits for it, and collect garbage."""
        garbage.collect_what_is_new()
        if opened.edits != edits or opened.latest.busy or not self._wanted(opened):
            return
        if opened.planner.plan(opened.cursor, ahead=True).relaid:
            opened.latest.start(partial(self._ahead, opened, opened.cursor))

    def _wanted(self, opened: OpenDocument) -> bool:
        self._asker.purge_excluded(opened)
        if opened.excluded is not None or opened.out_of_step:
            return False
        return opened.document.language_id not in self.settings.disabled_languages

    def _at_hand(self, opened: OpenDocument, query: Query) -> tuple[Insertion, ...]:
        """The rest of what was offered, where that is what the user types: nothing to compute.

        Who asks by hand gets what is at hand only where there is a choice.
        """
        insertions = tuple(dict.fromkeys(_rests(opened, query)))
        if not query.invoked:
            insertions = insertions[:1]
        elif len(insertions) == 1 and self.settings.alternatives:
            return ()
        if insertions:
            opened.latest.supersede()
            self._asker.typed(opened, query.cursor)
        return insertions

    async def _ask(self, opened: OpenDocument, query: Query, pause_s: float = 0.0) -> tuple[Insertion, ...]:
        if pause_s:
            await asyncio.sleep(pause_s)
        since = time.perf_counter()
        place = query.place(opened.document, multi_line=self.settings.multi_line, earlier=opened.balance)
        stop = stop_rule(place.before, place.after, place.language_id, multi_line=place.multi_line)
        if stop.indent is not None:
            stop = replace(stop, closes=place.statement.wants_closer)
        meanwhile = asyncio.get_running_loop().call_later(_MEANWHILE_SECONDS, self._prepare, opened, place, stop)
        try:
            completion = await self._asker.suggest(opened, query, self.settings, stop)
        finally:
            meanwhile.cancel()
        if completion is None:
            return ()
        self._pace.answered((time.perf_counter() - since) * 1000)
        return self._offer(opened, query, place, completion)

    def _prepare(self, opened: OpenDocument, place: Place, stop: StopRule) -> None:
        """Work out what the filters will look at, and look at the disk, before anybody waits for it."""
        place.work_out(indents=stop.indent is not None or not place.before.strip())
        opened.balance = place.statement.balance_to_keep
        self._asker.renew_exclusions(opened)

    def _offer(self, opened: OpenDocument, query: Query, place: Place, completion: Completion) -> tuple[Insertion, ...]:
        """Remember what is offered, and show it, unless it is held back."""
        held = not query.invoked and self._is_unlikely(completion)
        ending = query.ending(opened.document)
        shown: dict[str, Insertion] = {}
        offers: list[Offer] = []
        for text in (completion.text, *completion.alternatives):
            worth = worth_saying(text, place)
            insertion = fitted(worth, place)
            if not insertion.text or insertion.text in shown:
                continue
            shown[insertion.text] = query.item(insertion)
            if ending is not None:
                rest = Insertion(ending + insertion.text, insertion.replaced)
                offers.append(offer_at(query.cursor, ending + worth, rest, held=held))
        opened.offers = tuple(offers)
        return () if held else tuple(shown.values())

    def _is_unlikely(self, completion: Completion) -> bool:
        percent, logprob = self.settings.hold_back_percent, completion.mean_logprob
        return logprob is not None and math.exp(logprob) * 100 < percent

    async def _ahead(self, opened: OpenDocument, cursor: Position) -> None:
        await self._asker.look_ahead(opened, cursor, self.settings)


def _rests(opened: OpenDocument, query: Query) -> Iterator[Insertion]:
    """The rests of the offers that go on from what was typed, and from what is selected in the popup."""
    ending = query.ending(opened.document)
    for offer in opened.offers:
        rest = None if ending is None else rest_of(offer, opened.document, query.cursor)
        if ending is not None and rest is not None and rest.text != ending and rest.text.startswith(ending):
            yield query.item(Insertion(rest.text.removeprefix(ending), rest.replaced))
