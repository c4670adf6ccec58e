"""The remote engine: passes the scheduler's requests to a server or its replicas, as tasks of one event loop."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import islice

from msgspec import structs

from inference.engine.active_request import IsCancelled, OnPrefill, OnText
from inference.engine.decoding.drawing import check_choosing
from inference.engine.decoding.typed_choices import TypedChoices
from inference.engine.interface import AnyEngine, DeviceHooks, EngineInfo, ReplicaStatus
from inference.engine.sessions import user_of
from inference.engine.slots import MOST_RESIDENTS, Resident
from inference.remote.completing import Progress, RemoteCompleter
from inference.remote.event_loop import EventLoopThread
from inference.remote.health import ServedModel, watch
from inference.remote.replicas import Replica, Replicas
from inference.remote.request import RemoteRequest
from inference.remote.servers.interface import Query
from inference.remote.slots import Place, Places
from inference.text.healing import Healer
from inference.text.prompts import tokenize_prompt
from inference.text.stretches import Stretch, stretches_of
from inference.text.token_ids import common_prefix_length, packed
from kv_store.interface import StoreStats, TierStats
from protocol.errors import Busy, EngineUnavailable, MidfillError
from protocol.messages import Completion, CompletionRequest, Usage

STEP_S = 1.0
"""Longest wait of a step; the events that end one sooner are an answer and `wake`."""
CLOSE_S = 5.0
"""Seconds that closing waits for the server's connections."""

UNREPORTED = "the engine does not report cached tokens (vLLM: --enable-prompt-tokens-details), so they are estimated"


log = logging.getLogger(__name__)


class RemoteEngine(AnyEngine):
    """An engine in other processes, the replicas. Owns the loop and closes the connections."""

    def __init__(
        self,
        info: EngineInfo,
        replicas: Replicas,
        model: ServedModel,
        loop: EventLoopThread,
        tokens_checked: str,
        warning: str = "",
        on_close: Callable[[], None] = lambda: None,
        *,
        separate_users: bool = False,
    ) -> None:
        """`tokens_checked` tells the check of the tokens, `warning` what users should know from the start.

        With `separate_users`, users reuse nothing of each other's.
        `on_close` ends a server that the core has started. Several replicas are checked in the background from now on;
        a single one is checked when the engine connects to it anew.
        """
        self.info = info
        self.device = DeviceHooks()
        self.tokenizer = model.tokenizer
        self.tokens_checked = tokens_checked
        self._replicas = replicas
        self._healer = Healer(model.tokenizer) if model.heals else None
        self._typed_choices = TypedChoices(model.tokenizer.bytes_of)
        self._loop = loop
        self._warning = warning
        self._on_close = on_close
        self._separates_users = separate_users
        self._at_work: list[RemoteRequest] = []  # for the model thread only
        self._changed = threading.Condition()  # guards the fields below
        self._done: list[tuple[RemoteRequest, Future[Completion]]] = []
        self._is_woken = False
        self._is_closed = False
        self.hides_cached = False  # the server does not report how many tokens were cached
        for replica in replicas.all if len(replicas) > 1 else ():
            loop.start(watch(replica, model, self.wake))

    @property
    def capacity(self) -> int:
        return self._replicas.capacity

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        return tuple(replica.status for replica in self._replicas.all)

    @property
    def notice(self) -> str:
        """The warnings, and how much the server has dropped that was resident before."""
        notices = [self._replicas.notice, self._warning, UNREPORTED if self.hides_cached else ""]
        if lost := sum(places.lost_tokens for places in self._places):
            requests = sum(places.requests_with_losses for places in self._places)
            notices.append(
                f"the engine had dropped {lost} cached tokens when {requests} requests needed them: give it more slots "
                "or cache memory"
            )
        return "; ".join(filter(None, notices))

    @property
    def is_gone(self) -> bool:
        """Whether the server failed: another model may answer at its address next."""
        return self._replicas.are_gone and not self._at_work

    def begin(
        self,
        request: CompletionRequest,
        cancelled: IsCancelled = lambda: False,
        client: str = "",  # noqa: ARG002 - the scheduler has chosen the client already
        on_prefill: OnPrefill = lambda *_: None,
        on_text: OnText | None = None,
    ) -> RemoteRequest:
        run = RemoteRequest(request, cancelled)
        run.progress.on_prefill, run.progress.on_text = on_prefill, on_text
        try:
            self._prepare(run)
            self._send(run, self._replicas.choose(run.key))
        except MidfillError as error:
            run.outcome = error
            return run
        self._at_work.append(run)
        return run

    def drop_cancelled(self) -> list[RemoteRequest]:
        """Close the connections of the cancelled requests, which stops the server's work."""
        dropped = [run for run in self._at_work if run.cancelled()]
        for run in dropped:
            assert run.future is not None
            run.future.cancel()
            self._end(run, run.cancelled_completion)
        return dropped

    def step(self) -> list[RemoteRequest]:
        dropped = self.drop_cancelled()
        if dropped or not self._at_work:
            return dropped
        with self._changed:
            self._changed.wait_for(lambda: self._done or self._is_woken, STEP_S)
            self._is_woken = False
            done, self._done = self._done, []
        ended = []
        for run, future in done:
            if run.future is future and not run.has_ended:  # else it was cancelled, or moved meanwhile
                error = future.exception()
                ended += self._end(run, future.result()) if error is None else self._fail(run, _as_error(error))
        for run in [run for run in self._at_work if not run.replica.serves]:
            assert run.future is not None
            run.future.cancel()
            ended += self._fail(run, EngineUnavailable(run.replica.reason))
        return ended

    def wake(self) -> None:
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def forget(self, session: str) -> None:
        """Erase the slots that hold the document, where the server has slots."""
        self._typed_choices.forget(session)
        for replica in self._replicas.all:
            for place in replica.places.forget(session):
                self._erase(replica, place)

    def release(self, session: str) -> None:
        for replica in self._replicas.all:
            replica.places.release(session)

    def free(self, *, disk: bool) -> None:  # noqa: ARG002 - the server saves nothing
        """Erase the slots, where the server has them."""
        self._typed_choices.clear()
        for replica in self._replicas.all:
            for place in replica.places.forget_all():
                self._erase(replica, place)

    def stats(self) -> StoreStats:
        """The server's resident tokens, as far as the core knows them."""
        resident = sum(places.resident_tokens for places in self._places)
        tier = TierStats("engine", used_bytes=0, budget_bytes=0, tokens=resident, pages=0)
        return StoreStats((tier,), evicted_tokens=sum(places.lost_tokens for places in self._places))

    def residents(self) -> tuple[Resident, ...]:
        found = (resident for places in self._places for resident in places.residents)
        return tuple(islice(found, MOST_RESIDENTS))

    def stretches(self, request: CompletionRequest, usage: Usage) -> tuple[Stretch, ...]:
        return stretches_of(request, usage, self.tokenizer, self.info.context_tokens, self._healer)

    def abandon(self) -> None:
        self.close()

    def close(self, save_s: float | None = None) -> None:  # noqa: ARG002 - there is nothing to save
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.end_tasks()  # before the connections are closed: a task may open another
        try:
            self._loop.start(self._replicas.aclose()).result(CLOSE_S)
        except (OSError, RuntimeError, TimeoutError) as error:
            log.warning("the connections to %s could not be closed: %r", self.info.device, error)
        self._loop.close()
        self._on_close()

    @property
    def _places(self) -> tuple[Places, ...]:
        return tuple(replica.places for replica in self._replicas.all)

    def _prepare(self, run: RemoteRequest) -> None:
        """Check the request as the local engine does, and tokenize it."""
        check_choosing(run.request)
        limit = self.info.context_tokens
        run.request = request = structs.replace(run.request, max_tokens=min(run.request.max_tokens, limit // 2))
        settled = tokenize_prompt(request.prompt, self.tokenizer, limit, request.max_tokens, self._healer)
        run.start = self._typed_choices.start(request, settled)

    def _send(self, run: RemoteRequest, replica: Replica) -> None:
        """Lend the request a place at the replica, and send it there."""
        assert run.start is not None
        request, token_ids = run.request, run.prompt.token_ids
        run.tried.append(replica)
        replica.at_work += 1
        run.places = replica.places
        run.place = run.places.lend(request.session, token_ids)
        run.progress = progress = Progress(
            run.progress.started,
            block_tokens=replica.facts.block_tokens,
            on_prefill=run.progress.on_prefill,
            on_text=run.progress.on_text,
        )
        reuse = request.reuse and not (self._separates_users and run.place.is_foreign)
        if reuse:
            shared = min(common_prefix_length(run.place.token_ids, token_ids), len(token_ids) - 1)
            progress.expected_cached = shared - shared % progress.block_tokens
        query = Query(
            token_ids=token_ids,
            max_tokens=request.max_tokens,
            end_ids=tuple(sorted(self.tokenizer.markers.end)),
            session=_opaque(request.session),
            slot=run.place.number,
            reuse=reuse,
            salt=_opaque(user) if self._separates_users and (user := user_of(request.session)) else "",
        )
        completer = RemoteCompleter(replica.server, self.tokenizer, request, run.start, query, progress)
        run.future = self._loop.start(completer.complete())
        run.future.add_done_callback(partial(self._note_done, run))

    def _note_done(self, run: RemoteRequest, future: Future[Completion]) -> None:
        with self._changed:
            self._done.append((run, future))
            self._changed.notify()

    def _fail(self, run: RemoteRequest, error: Exception) -> list[RemoteRequest]:
        """Send the request to a replica that it has not tried, or end it if none is left or its client has text."""
        replica = run.replica
        if isinstance(error, EngineUnavailable) and replica.serves:
            replica.suspect(str(error))
            self._loop.start(replica.check_soon())
        can_move = isinstance(error, EngineUnavailable | Busy) and not run.progress.has_told and not run.cancelled()
        try:
            other = self._replicas.choose(run.key, run.tried) if can_move else None
        except EngineUnavailable:
            other = None
        if other is None:
            return self._end(run, error)
        self._leave(run)
        replica.moved_requests += 1
        self._send(run, other)
        return []

    def _leave(self, run: RemoteRequest) -> None:
        assert run.places is not None
        assert run.place is not None
        run.replica.at_work -= 1
        if run.places.give_back(run.place, run.prompt.token_ids if run.progress.is_prefilled else packed()):
            self._erase(run.replica, run.place)

    def _end(self, run: RemoteRequest, outcome: Completion | Exception) -> list[RemoteRequest]:
        """End the request; returns it alone."""
        self._leave(run)
        self._at_work.remove(run)
        run.outcome = outcome
        progress, replica = run.progress, run.replica
        if run.start is not None:
            run.start.remember(progress.token_ids)
        if isinstance(outcome, Completion) and run.request.max_tokens and outcome.finish_reason != "cancelled":
            replica.count(outcome.usage)
        if progress.cached_tokens is not None:
            assert run.places is not None
            if run.places.note_cached(progress.expected_cached, progress.cached_tokens):
                self._loop.start(_check_facts(replica))
        elif progress.has_ended:
            self.hides_cached = True
        return [run]

    def _erase(self, replica: Replica, place: Place) -> None:
        """Drop the slot's text, before its next request; the log tells where that fails."""
        try:
            if place.number is None:
                reason = "it evicts by its own rules alone"
            elif replica.serves:
                self._loop.start(self._overwrite(replica, place.number)).result(CLOSE_S)
                return
            else:
                reason = replica.reason
        except (MidfillError, TimeoutError) as error:
            reason = str(error) or "no answer"
        log.warning("%s may keep the text of a document that is excluded now: %s", replica.address, reason)

    async def _overwrite(self, replica: Replica, slot: int) -> None:
        """Erase a slot, or replace its prompt by one token where the server refuses that."""
        if not await replica.server.erase(slot):
            token_ids = packed([min(self.tokenizer.markers.end)])
            query = Query(token_ids=token_ids, max_tokens=0, session="erased", slot=slot, reuse=False)
            async for _ in replica.server.stream(query):
                pass


def _opaque(name: str) -> str:
    """A name that tells nothing of this one."""
    return hashlib.blake2s(name.encode(), digest_size=12).hexdigest()


async def _check_facts(replica: Replica) -> None:
    """Ask a server that has lost everything, as after a restart, whether it is another one now."""
    try:
        if await replica.server.facts() != replica.facts:
            replica.leave(f"{replica.address} has another model or other limits now")
    except Busy:
        log.info("%s is too busy to say whether it is another server now", replica.address)
    except MidfillError as error:
        replica.leave(str(error))


def _as_error(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else EngineUnavailable(f"the request was interrupted: {error!r}")
