"""The remote engine: passes the scheduler's requests to a server, each as a task of one event loop."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable

from msgspec import structs

from inference.engine.active_request import IsCancelled, OnPrefill, OnText
from inference.engine.drawing import check_choosing
from inference.engine.engine import DeviceHooks, EngineInfo
from inference.remote.completing import RemoteCompleter
from inference.remote.event_loop import EventLoopThread
from inference.remote.interface import ModelServer, Query, ServerFacts
from inference.remote.request import RemoteRequest
from inference.remote.slots import Place, Places
from inference.text.healing import Healer
from inference.text.prompts import tokenize_prompt
from inference.text.token_ids import common_prefix_length, packed
from inference.text.tokenization import TextTokenizer
from kv_store.interface import StoreStats, TierStats
from protocol.errors import BadInput, EngineUnavailable, MidfillError
from protocol.messages import MAX_ALTERNATIVES, Completion, CompletionRequest

STEP_S = 1.0
"""Longest wait of a step; the events that end one sooner are an answer and `wake`."""
CLOSE_S = 5.0
"""Seconds that closing waits for the server's connections."""

UNREPORTED = "the engine does not report cached tokens (vLLM: --enable-prompt-tokens-details), so they are estimated"


log = logging.getLogger(__name__)


class RemoteEngine:
    """Implements `inference.engine.interface.AnyEngine` with a server. Owns the loop and closes the server."""

    def __init__(
        self,
        info: EngineInfo,
        server: ModelServer,
        facts: ServerFacts,
        tokenizer: TextTokenizer,
        healer: Healer | None,
        loop: EventLoopThread,
        tokens_checked: str,
        warning: str = "",
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        """`tokens_checked` tells the check of the tokens, `warning` what users should know from the start.

        `on_close` ends a server that the core has started.
        """
        self.info = info
        self.device = DeviceHooks()
        self.tokenizer = tokenizer
        self.tokens_checked = tokens_checked
        self.capacity = facts.capacity
        self._server = server
        self._facts = facts
        self._healer = healer
        self._loop = loop
        self._warning = warning
        self._on_close = on_close
        self._places = Places(facts.slots)
        self._at_work: list[RemoteRequest] = []  # for the model thread only
        self._changed = threading.Condition()  # guards the fields below
        self._done: list[RemoteRequest] = []
        self._is_woken = False
        self._must_reconnect = False
        self._is_closed = False
        self.hides_cached = False  # the server does not report how many tokens were cached

    @property
    def notice(self) -> str:
        """The warnings, and how much the server has dropped that was resident before."""
        notices = [self._warning, UNREPORTED if self.hides_cached else ""]
        if self._places.lost_tokens:
            notices.append(
                f"the engine had dropped {self._places.lost_tokens} cached tokens when "
                f"{self._places.requests_with_losses} requests needed them: give it more slots or cache memory"
            )
        return "; ".join(filter(None, notices))

    @property
    def is_gone(self) -> bool:
        """As `AnyEngine.is_gone`: the server failed, and another model may answer at its address next."""
        return self._must_reconnect and not self._at_work

    def complete(self, request: CompletionRequest, cancelled: IsCancelled = lambda: False) -> Completion:
        """As `Engine.complete`."""
        run = self.begin(request, cancelled)
        while not run.has_ended:
            self.step()
        return run.completion()

    def begin(
        self,
        request: CompletionRequest,
        cancelled: IsCancelled = lambda: False,
        client: str = "",  # noqa: ARG002 - the scheduler has chosen the client already
        on_prefill: OnPrefill = lambda *_: None,
        on_text: OnText | None = None,
    ) -> RemoteRequest:
        """As `AnyEngine.begin`: tokenizes the prompt, places it, and sends it."""
        assert len(self._at_work) < self.capacity, f"{len(self._at_work)} requests are at work, and no more can be"
        run = RemoteRequest(request, cancelled)
        run.progress.on_prefill, run.progress.on_text = on_prefill, on_text
        try:
            completer = self._prepare(run)
        except MidfillError as error:
            run.outcome = error
            return run
        self._at_work.append(run)
        run.future = self._loop.start(completer.complete())
        run.future.add_done_callback(lambda _: self._note_done(run))
        return run

    def drop_cancelled(self) -> list[RemoteRequest]:
        """As `AnyEngine.drop_cancelled`: closes their connections, which stops the server's work."""
        dropped = [run for run in self._at_work if run.cancelled()]
        for run in dropped:
            assert run.future is not None
            run.future.cancel()
            self._end(run, run.cancelled_completion)
        return dropped

    def step(self) -> list[RemoteRequest]:
        """As `AnyEngine.step`: awaits the next answer."""
        dropped = self.drop_cancelled()
        if dropped or not self._at_work:
            return dropped
        with self._changed:
            self._changed.wait_for(lambda: self._done or self._is_woken, STEP_S)
            self._is_woken = False
            done, self._done = self._done, []
        ended = [run for run in done if not run.has_ended]  # the others were cancelled
        for run in ended:
            assert run.future is not None
            error = run.future.exception()
            self._end(run, run.future.result() if error is None else _as_error(error))
        return ended

    def wake(self) -> None:
        """As `AnyEngine.wake`."""
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def forget(self, session: str) -> None:
        """As `AnyEngine.forget`: erases the slots that hold the document, where the server has slots."""
        for place in self._places.forget(session):
            self._erase(place)

    def release(self, session: str) -> None:
        """As `AnyEngine.release`."""
        self._places.release(session)

    def save(self, seconds: float | None = None) -> bool:  # noqa: ARG002 - residency is the server's
        """As `AnyEngine.save`: there is nothing to save here."""
        return True

    def measure_speed(self) -> None:
        """As `AnyEngine.measure_speed`: the server may serve others too."""

    def stats(self) -> StoreStats:
        """As `AnyEngine.stats`: the server's resident tokens as far as the core knows them."""
        tier = TierStats("engine", used_bytes=0, budget_bytes=0, tokens=self._places.resident_tokens, pages=0)
        return StoreStats((tier,), evicted_tokens=self._places.lost_tokens)

    def abandon(self) -> None:
        """As `AnyEngine.abandon`."""
        self.close()

    def close(self, save_s: float | None = None) -> None:  # noqa: ARG002 - there is nothing to save
        """As `AnyEngine.close`."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._loop.start(self._server.aclose()).result(CLOSE_S)
        except (OSError, RuntimeError, TimeoutError) as error:
            log.warning("the connections to %s could not be closed: %r", self.info.device, error)
        self._loop.close()
        self._on_close()

    def _prepare(self, run: RemoteRequest) -> RemoteCompleter:
        """Check the request as the local engine does, tokenize it and lend it a place."""
        request = run.request
        if request.max_tokens < 0:
            raise BadInput(f"max_tokens is {request.max_tokens}: it has to be 0 or more")
        if not 0 <= request.alternatives <= MAX_ALTERNATIVES:
            raise BadInput(f"alternatives is {request.alternatives}: it has to be between 0 and {MAX_ALTERNATIVES}")
        check_choosing(request)
        limit = self.info.context_tokens
        request = structs.replace(request, max_tokens=min(request.max_tokens, limit // 2))
        run.prompt = tokenize_prompt(request.prompt, self.tokenizer, limit, request.max_tokens, self._healer)
        run.place = self._places.lend(request.session, run.prompt.token_ids)
        if request.reuse:
            shared = min(common_prefix_length(run.place.token_ids, run.prompt.token_ids), len(run.prompt.token_ids) - 1)
            run.progress.expected_cached = shared - shared % self._facts.block_tokens
        run.progress.sent = time.perf_counter()
        query = Query(
            token_ids=run.prompt.token_ids,
            max_tokens=request.max_tokens,
            end_ids=tuple(sorted(self.tokenizer.markers.end)),
            session=hashlib.blake2s(request.session.encode(), digest_size=12).hexdigest(),
            slot=run.place.number,
            reuse=request.reuse,
        )
        return RemoteCompleter(self._server, self.tokenizer, request, run.prompt, query, run.progress)

    def _note_done(self, run: RemoteRequest) -> None:
        with self._changed:
            self._done.append(run)
            self._changed.notify()

    def _end(self, run: RemoteRequest, outcome: Completion | Exception) -> None:
        assert run.place is not None
        assert run.prompt is not None
        run.outcome = outcome
        self._at_work.remove(run)
        progress = run.progress
        if self._places.give_back(run.place, run.prompt.token_ids if progress.is_prefilled else packed()):
            self._erase(run.place)
        if isinstance(outcome, EngineUnavailable):
            self._must_reconnect = True
        if progress.cached_tokens is not None:
            if self._places.note_cached(progress.expected_cached, progress.cached_tokens):
                self._loop.start(self._check_model())
        elif progress.has_ended:
            self.hides_cached = True

    async def _check_model(self) -> None:
        """Ask a server that has lost everything, as after a restart, whether it has another model now."""
        try:
            facts = await self._server.facts()
        except MidfillError:
            self._must_reconnect = True
        else:
            self._must_reconnect |= facts != self._facts

    def _erase(self, place: Place) -> None:
        """Drop the slot's text, before its next request; the log tells where that fails."""
        try:
            if place.number is not None:
                self._loop.start(self._overwrite(place.number)).result(CLOSE_S)
                return
            reason = "it evicts by its own rules alone"
        except (MidfillError, TimeoutError) as error:
            reason = str(error) or "no answer"
        log.warning("%s may keep the text of a document that is excluded now: %s", self.info.device, reason)

    async def _overwrite(self, slot: int) -> None:
        """Erase a slot, or replace its prompt by one token where the server refuses that."""
        if not await self._server.erase(slot):
            token_ids = packed([min(self.tokenizer.markers.end)])
            query = Query(token_ids=token_ids, max_tokens=0, session="erased", slot=slot, reuse=False)
            async for _ in self._server.stream(query):
                pass


def _as_error(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else EngineUnavailable(f"the request was interrupted: {error!r}")
