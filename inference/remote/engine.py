"""The remote engine: passes the scheduler's requests to a server, as tasks of an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from msgspec import structs

from inference.engine.interface import AnyEngine, DeviceHooks, EngineInfo
from inference.engine.partial_words import PartialWordCache
from inference.engine.request import Request, validate
from inference.engine.short_prompts import PrefillSpeed, choose_prompt
from inference.remote.completing import RemoteCompleter, RemoteRun
from inference.remote.server import GenerationQuery, ModelServer, ServerFacts
from inference.remote.slots import RemoteSlot, RemoteSlots
from inference.text.healing import Healer
from inference.text.prompts import TokenizedPrompt, tokenize_prompt
from inference.text.token_ids import TokenIds, common_prefix_length, packed
from inference.text.tokenization import TextTokenizer
from kv_store.interface import SessionKey, StoreStats, TierStats
from protocol.errors import Busy, EngineUnavailable, MidfillError
from protocol.messages import Completion, CompletionRequest

CLOSE_S = 5.0
"""Seconds that closing waits for the tasks' ends."""

Result = TypeVar("Result")


class EventLoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._started: set[Future[Any]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="engine", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Run a coroutine; cancelling its future cancels it. From any thread."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._started.add(future)
        future.add_done_callback(self._started.discard)
        return future

    def end_tasks(self) -> None:
        """Cancel what was started, and wait for its end, and for that of the tasks it has started itself.

        Those are left to it: anyio warns of a task that another cancels before its first step.
        """
        for future in list(self._started):
            future.cancel()
        with suppress(TimeoutError):
            self.start(self._end_tasks()).result(CLOSE_S)

    def close(self) -> None:
        """Cancel what still runs, and stop the loop once it has ended."""
        self.end_tasks()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        if not self._thread.is_alive():
            self._loop.close()

    async def _end_tasks(self) -> None:
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
        await self._loop.shutdown_asyncgens()


STEP_S = 1.0
"""Longest wait of a step; the events that end one sooner are an answer and `wake`."""
KEY_TOKENS = 64
"""Tokens by which anonymous prompts are told apart: a new keystroke leaves them as they are."""

UNREPORTED = "the engine does not report cached tokens (vLLM: --enable-prompt-tokens-details), so they are estimated"


log = logging.getLogger(__name__)


class RemoteEngine(AnyEngine):
    """An engine in another process, the server. Owns the loop and closes the connections.

    After a failed request the engine is gone as soon as nothing is at work: the next request connects anew, which
    checks the server's model, limits and tokens again.
    """

    def __init__(
        self,
        info: EngineInfo,
        server: ModelServer,
        facts: ServerFacts,
        tokenizer: TextTokenizer,
        loop: EventLoopThread,
        tokens_checked: str,
        warning: str = "",
        on_close: Callable[[], None] = lambda: None,
        *,
        heals: bool,
    ) -> None:
        """`facts` are what the server reported, `heals` whether it forces the first bytes of a text.

        `tokens_checked` tells the check of the tokens, `warning` what users should know from the start. `on_close` ends
        a server that the core has started.
        """
        self.info = info
        self.device = DeviceHooks()
        self.tokenizer = tokenizer
        self.tokens_checked = tokens_checked
        self._server = server
        self._facts = facts
        self._slots = RemoteSlots(facts.slots, keeps_states=facts.copy_tokens > 0)
        self._speed = PrefillSpeed(assumed_fast=False)
        self._has_failed = False  # a request to the server; set by the model's and the loop's thread, never unset
        self._replaced = ""  # why the server is not the one that the engine connected to; the loop's thread sets it
        self._healer = Healer(tokenizer) if heals else None
        self._partial_words = PartialWordCache(tokenizer.bytes_of)
        self._loop = loop
        self._warning = warning
        self._on_close = on_close
        # For the model thread only.
        self._at_work: list[RemoteRun] = []
        self._is_closed = False
        self.hides_cached = False  # the server does not report how many tokens were cached
        self._changed = threading.Condition()  # guards the fields below
        self._done: list[tuple[RemoteRun, Future[Completion]]] = []
        self._is_woken = False

    @property
    def capacity(self) -> int:
        return self._facts.capacity

    @property
    def notice(self) -> str:
        """The warnings, and how much the server has dropped that was resident before."""
        notices = [self._warning, UNREPORTED if self.hides_cached else ""]
        if lost := self._slots.lost_tokens:
            notices.append(
                f"the engine had dropped {lost} cached tokens when {self._slots.requests_with_losses} requests needed "
                "them: give it more slots or cache memory"
            )
        return "; ".join(filter(None, notices))

    @property
    def is_gone(self) -> bool:
        """Whether the server failed: another model may answer at its address next."""
        return bool(self._has_failed or self._replaced) and not self._at_work

    def begin(self, request: Request) -> None:
        request.start()
        try:
            run = self._prepare(request)
            if self._replaced:
                raise EngineUnavailable(self._replaced)
        except MidfillError as error:
            request.outcome = error
        else:
            run.future = self._loop.start(RemoteCompleter(self._server, self.tokenizer, run).complete())
            run.future.add_done_callback(partial(self._note_done, run))
            self._at_work.append(run)

    def drop_unwanted(self) -> list[Request]:
        """Close the connections of the requests, which stops the server's work."""
        return [self._drop(run, run.cancelled()) for run in tuple(self._at_work) if run.request.is_unwanted]

    def step(self) -> list[Request]:
        dropped = self.drop_unwanted()
        if dropped or not self._at_work:
            return dropped
        with self._changed:
            self._changed.wait_for(lambda: self._done or self._is_woken, STEP_S)
            self._is_woken = False
            done, self._done = self._done, []
        ended = []
        for run, future in done:
            if run in self._at_work:  # else it was dropped meanwhile, and perhaps begun anew
                error = future.exception()
                ended.append(self._end(run, future.result() if error is None else _as_error(error)))
        lost = tuple(self._at_work) if self._replaced else ()
        return ended + [self._drop(run, EngineUnavailable(self._replaced)) for run in lost]

    def wake(self) -> None:
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    def forget(self, document: str) -> None:
        """Erase the slots that hold the document, where the server has slots."""
        self._partial_words.forget(document)
        for slot in self._slots.forget(document):
            self._erase(slot)

    def documents(self) -> set[str]:
        return self._slots.documents().union(each.document for each in self._partial_words.sessions())

    def release(self, session: SessionKey) -> None:
        self._slots.unpin(session)

    def free(self, *, disk: bool) -> None:  # noqa: ARG002 - the server saves nothing
        """Erase the slots, where the server has them."""
        self._partial_words.clear()
        for slot in self._slots.forget_all():
            self._erase(slot)

    def stats(self) -> StoreStats:
        """The server's resident tokens, as far as the core knows them."""
        tier = TierStats("engine", used_bytes=0, budget_bytes=0, tokens=self._slots.resident_tokens, pages=0)
        return StoreStats((tier,), evicted_tokens=self._slots.lost_tokens)

    def abandon(self) -> None:
        self.close()

    def close(self, save_s: float | None = None) -> None:  # noqa: ARG002 - there is nothing to save
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.end_tasks()  # before the connections are closed: a task may open another
        try:
            self._loop.start(self._server.aclose()).result(CLOSE_S)
        except (OSError, RuntimeError, TimeoutError) as error:
            log.warning("the connections to %s could not be closed: %r", self.info.device, error)
        self._loop.close()
        self._on_close()

    def _prepare(self, request: Request) -> RemoteRun:
        """Check the request as the local engine does, tokenize its prompt, and acquire a slot at the server."""
        validate(request.spec)
        limit, cost = self.info.context_tokens, request.cost
        request.spec = structs.replace(request.spec, max_tokens=min(request.spec.max_tokens, limit // 2))
        cost.block_tokens = self._facts.block_tokens
        if self._facts.slots == 1:  # which the whole prompt and the short one would take from each other
            stable = self._tokenize(request.spec)
        else:
            stable = choose_prompt(request, self._tokenize, self.tokenizer.count_tokens, self._slots.missing, self._speed)
        spec, session = request.spec, request.session
        start = self._partial_words.start(request, stable)
        token_ids = start.prompt.token_ids
        cost.prompt_tokens = len(token_ids)
        slot = self._slots.acquire(session, token_ids)
        cost.prepared = time.perf_counter()
        expected = min(common_prefix_length(slot.token_ids, token_ids), len(token_ids) - 1) if spec.reuse else 0
        query = GenerationQuery(
            token_ids=token_ids,
            max_tokens=spec.max_tokens,
            end_ids=tuple(sorted(self.tokenizer.markers.end)),
            session=_opaque(_key(session, token_ids)),
            slot=slot.number,
            reuse=spec.reuse,
        )
        run = RemoteRun(request, start, query, slot, expected - expected % cost.block_tokens)
        if self._facts.copy_tokens and spec.reuse and not session.is_short:
            run.mark = self._mark(spec.prompt.prefix, start.prompt, expected)
        return run

    def _mark(self, prefix: str, prompt: TokenizedPrompt, expected: int) -> int:
        """Where to end a first request, so that a copy of the states stands where later prefixes leave a new one; else 0."""
        end = prompt.prefix_end(self.tokenizer.markers)
        if end <= expected:
            return 0
        token_ids, stable = self.tokenizer.encode_stable(prefix)
        mark = end - (len(token_ids) - stable) + self._facts.copy_tokens
        return mark if expected < mark < len(prompt.token_ids) else 0

    def _tokenize(self, spec: CompletionRequest) -> TokenizedPrompt:
        return tokenize_prompt(spec.prompt, self.tokenizer, self.info.context_tokens, spec.max_tokens, self._healer)

    def _note_done(self, run: RemoteRun, future: Future[Completion]) -> None:
        with self._changed:
            self._done.append((run, future))
            self._changed.notify()

    def _drop(self, run: RemoteRun, outcome: Completion | Exception) -> Request:
        run.drop()
        return self._end(run, outcome)

    def _end(self, run: RemoteRun, outcome: Completion | Exception) -> Request:
        """End the request, take its place back, and notice what its answer tells of the server."""
        self._at_work.remove(run)
        run.request.outcome = outcome
        if isinstance(outcome, EngineUnavailable):
            self._has_failed = True
        run.start.remember(run.token_ids)
        if run.is_prefilled and run.cost.prepared is not None and run.cost.prefilled is not None:
            self._speed.note(run.recomputed, run.cost.prefilled - run.cost.prepared)
        resident = run.start.prompt.token_ids
        if not run.is_prefilled:  # what it shares with the prompt before it is still there
            resident = resident[: run.expected_cached]
        if self._slots.release(run.slot, resident):
            self._erase(run.slot)
        if run.cached_tokens is not None:
            if self._slots.note_cached(run.expected_cached, run.cached_tokens):
                self._loop.start(self._check_facts())
        elif run.has_ended:
            self.hides_cached = True
        return run.request

    def _erase(self, slot: RemoteSlot) -> None:
        """Drop the slot's text, before its next request; the log tells where that fails."""
        try:
            if slot.number is not None:
                self._loop.start(self._overwrite(slot.number)).result(CLOSE_S)
                return
            reason = "it evicts by its own rules alone"
        except (MidfillError, TimeoutError) as error:
            reason = str(error) or "no answer"
        log.warning("%s may keep the text of a document that is excluded now: %s", self.info.device, reason)

    async def _overwrite(self, slot: int) -> None:
        """Erase a slot, or replace its prompt by one token where the server refuses that."""
        if not await self._server.erase(slot):
            token_ids = packed([min(self.tokenizer.markers.end)])
            query = GenerationQuery(token_ids=token_ids, max_tokens=0, session="erased", slot=slot, reuse=False)
            async for _ in self._server.stream(query):
                pass

    async def _check_facts(self) -> None:
        """Ask a server that has lost everything, as after a restart, whether it is another one now."""
        try:
            if await self._server.facts() != self._facts:
                self._replaced = f"{self.info.device} has another model or other limits now"
        except Busy:
            log.info("%s is too busy to say whether it is another server now", self.info.device)
        except MidfillError as error:
            log.warning("the engine is connected to anew: %s", error)
            self._has_failed = True  # behind a router, other servers may go on with the requests at work


def _key(session: SessionKey, token_ids: TokenIds) -> str:
    """The name by which a router chooses a server: the session, or the beginning of an anonymous prompt."""
    return token_ids[:KEY_TOKENS].tobytes().hex() if session.is_anonymous else str(session)


def _opaque(name: str) -> str:
    """A name that tells nothing of this one."""
    return hashlib.blake2s(name.encode(), digest_size=12).hexdigest()


def _as_error(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else EngineUnavailable(f"the request was interrupted: {error!r}")
