"""The scheduler: the one thread that uses the engine for requests, saving, loading and unloading."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial

import psutil
from msgspec.structs import replace

from inference.core.engine_holder import EngineHolder
from inference.core.queue import Inbox
from inference.engine.request import Request, turn_of
from kv_store.interface import SessionKey, StoreStats
from protocol.errors import Busy, Cancelled, DeviceLost, MidfillError
from protocol.messages import Completion, CoreMemory, CoreStatus, TierMemory

STEP_S = 0.02
"""Longest wait that a saving step adds to a request; a step saves at least one page, and at rest a snapshot."""

AT_LATEST_S = 30.0
"""Seconds after the last pass at which a new one begins without a rest."""

APART_S = 0.25
"""Seconds between two steps of a pass that begins without a rest."""


class SavingSchedule:
    """Decides when to call `save(seconds, snapshots)`.

    It returns True when nothing is left to save: the pass has ended.
    """

    def __init__(self, save: Callable[[float, bool], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._save = save
        self._clock = clock
        self._ended = self._stepped = clock()

    def step_at_rest(self) -> bool:
        """Run one saving step; True if the pass has ended."""
        return self._step(snapshots=True)

    def step_between_forwards(self) -> None:
        """Run one saving step if the last pass is older than AT_LATEST_S: this bounds what a killed process loses.

        It writes no snapshots: one alone can take longer than STEP_S.
        """
        now = self._clock()
        if now - self._ended >= AT_LATEST_S and now - self._stepped >= APART_S:
            self._step(snapshots=False)

    def _step(self, *, snapshots: bool) -> bool:
        is_over = self._save(STEP_S, snapshots)
        self._stepped = self._clock()
        if is_over:
            self._ended = self._stepped
        return is_over


_REST_S = 0.5
"""Seconds; usually longer than the pause between two keys of continuous typing."""

_LONG_REST_S = 5.0
"""Seconds without a request after which resident KV is saved."""

SHARE_FOR_SAVING = 0.6
"""Share of the closing time; the rest is for the forward in progress and for unloading."""

SLICE_S = 0.002
"""Seconds of chores at a time; a slice does at least one."""

CHORES_SHARE = 0.1
"""Most of the model thread's time that chores take while requests are at work."""

MEASURED_FOR_S = 1.0

Observer = Callable[[Request], None]
Freed = Callable[[MidfillError | None], None]

log = logging.getLogger(__name__)


class Scheduler:
    """Fills the engine to its capacity with each session's newest request, shared evenly between users.

    New requests begin between two forwards. When the engine is full, these give way to a waiting request within one
    forward, and resume later: prefetches (`max_tokens=0`), alternatives to another user's request, and the last begun
    request of a user that has at least two more at work than the waiting one's. Every request gets its
    outcome exactly once, a completion or an error, on the model thread, or on the thread whose call ended it while it
    waited.
    """

    def __init__(self, holder: EngineHolder, unload_after_s: float | None = None, observe: Observer | None = None) -> None:
        """Unloads the model after `unload_after_s` seconds without a request.

        Calls `observe` with every request that is answered, or refused for a limit. A client without a user counts as
        one.
        """
        self._holder = holder
        self._unload_after_s = unload_after_s
        self._observe = observe
        self._inbox = Inbox(holder.capacity, holder.wake)
        self._residency: StoreStats | None = None
        self._save_until = math.inf  # by time.monotonic(), when closing
        self._saving = SavingSchedule(self._save)
        self._chores_due = -math.inf  # by time.monotonic(), beside requests
        self._to_notify: dict[bool, deque[Freed]] = {True: deque(), False: deque()}  # those who wait for `free`, by `disk`
        self._purged: deque[Collection[str]] = deque()  # digests that wait for the model thread
        self._process_bytes = (-math.inf, "", 0)  # when they were measured, the core's state then, and how many
        self.lost: DeviceLost | None = None
        """Set when the process must end because it can no longer use its GPU."""
        self._thread = threading.Thread(target=self._serve, name="model", daemon=True)
        self._thread.start()

    @property
    def status(self) -> CoreStatus:
        return self._holder.status

    @property
    def residency(self) -> StoreStats | None:
        """Store statistics after the last request; None while no model is loaded."""
        return self._residency if self._holder.is_loaded else None

    def submit(self, request: Request) -> None:
        """Queue a request. Raises Busy if a limit of the user is reached.

        If it supersedes, older requests of the client's session fail with Cancelled.
        """
        try:
            superseded = self._inbox.put(request)
        except Busy as refusal:
            request.outcome = refusal
            self._count(request)
            raise
        if superseded is not None:
            self._deliver(superseded, Cancelled("a newer request of the same session arrived"))

    def cancel(self, request: Request) -> None:
        """Answer a request with Cancelled: at once if it waits, within one forward if it runs."""
        if self._inbox.cancel(lambda other: other is request) is not None:
            self._deliver(request, Cancelled("the client cancelled it"))

    def forget(self, session: SessionKey, client: str = "") -> None:
        """Cancel the client's request of this session, and drop the text of its document for all clients.

        Raises Busy, without dropping it, if too much of the user waits to be forgotten.
        """
        waiting = self._inbox.cancel(lambda request: request.key == (client, session))
        if waiting is not None:
            self._deliver(waiting, Cancelled("the client asked the core to forget the session"))
        turn = turn_of(client, session.user)
        self._inbox.add(partial(self._holder.forget, session.document), ("forget", session), turn)

    def forget_purged(self, digests: Collection[str]) -> None:
        """Drop the text of documents that another core was asked to forget, by the digests of their names."""
        self._purged.append(digests)
        self._inbox.add(self._forget_purged, "purged")  # one chore for all: none is refused, however long they wait

    def release(self, session: SessionKey, client: str = "") -> None:
        """Unpin the KV of a closed document: the store may evict it by its ordinary rules. Raises Busy as `forget`."""
        self._inbox.add(partial(self._holder.release, session), ("release", session), turn_of(client, session.user))

    def unload(self) -> None:
        """Unload the model as soon as no request is at work; the next request loads it again."""
        self._inbox.add_when_idle(self._unload, "unload")

    def free(self, on_done: Freed, *, disk: bool) -> None:
        """Drop all resident KV, and with `disk` what is saved, as soon as no request is at work; the model stays.

        `on_done` gets the error, if any, on the model thread. Those who wait for the same are served together.
        """
        self._to_notify[disk].append(on_done)
        self._inbox.add_when_idle(partial(self._free, disk=disk), ("free", disk))

    def memory(self) -> CoreMemory:
        """The memory in use; of the store, as it was after the last request, saving or freeing.

        That of the process is at most MEASURED_FOR_S old, and of the present state: to look for its children takes
        milliseconds.
        """
        stats, now, state = self.residency, time.monotonic(), self.status.state
        measured_at, measured_in, process_bytes = self._process_bytes
        if now - measured_at >= MEASURED_FOR_S or state != measured_in:
            process_bytes = _resident_bytes()
            self._process_bytes = now, state, process_bytes
        if stats is None:
            return CoreMemory(process_bytes)
        tiers = (TierMemory(tier.name, tier.used_bytes, tier.budget_bytes, tier.tokens) for tier in stats.tiers)
        weights = self._holder.weights_bytes
        return CoreMemory(process_bytes, weights, stats.workspaces, stats.workspaces_bytes, tuple(tiers))

    def close(self, timeout_s: float | None = None) -> bool:
        """Cancel all requests, save for at most `timeout_s`, unload the model and end the thread.

        Returns False if the thread is still busy at the deadline, for example loading a model. The process must then
        end without finalizing Python (`os._exit`), because finalization would stop the thread inside foreign code.
        """
        if timeout_s is not None:
            self._save_until = time.monotonic() + SHARE_FOR_SAVING * timeout_s
        for request in self._inbox.close():
            self._deliver(request, Cancelled("the core is shutting down"))
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        self._keep_going(self._holder.import_early)
        while True:
            try:
                if not self._wait_for_work():
                    break
                self._go_on()
            except DeviceLost as error:
                log.critical("%s: the core exits, so that a new process can use the device", error)
                self._give_up(error)
                return
            except Exception as error:
                log.exception("the engine failed; the next request loads it again")
                self._abandon(MidfillError(f"the core failed: {error!r}"))
        self._keep_going(lambda: self._end(self._holder.drop_unwanted()))
        while (chore := self._inbox.take_chore()) is not None:
            self._keep_going(chore)
        self._unload()

    def _go_on(self) -> None:
        """Run one forward, and the work between two forwards."""
        self._end(self._holder.drop_unwanted())
        self._do_chores()
        self._saving.step_between_forwards()
        for chore in self._inbox.take_chores_when_idle():
            self._keep_going(chore)
        while self._inbox.has_waiting:
            if (request := self._inbox.take()) is not None:
                self._begin(request)
            elif self._inbox.make_room():
                self._end(self._holder.drop_unwanted())
            else:
                break
        self._end(self._holder.step())

    def _give_up(self, error: DeviceLost) -> None:
        """Answer every request with the error, end the thread and refuse later requests."""
        self.lost = error
        waiting = self._inbox.close()
        self._end_all(error)
        for request in waiting:
            self._deliver(request, error)
        self._keep_going(partial(self._holder.abandon, error))

    def _abandon(self, error: MidfillError) -> None:
        self._end_all(error)
        self._unload()

    def _end_all(self, error: MidfillError) -> None:
        for request in self._inbox.running:
            request.outcome = error
            self._finish(request)

    def _wait_for_work(self) -> bool:
        """Return when there is something to do; False when closing.

        After a short rest it collects garbage and lets the engine prepare; after a longer one it saves resident KV;
        after `unload_after_s` it unloads the model.
        """
        if self._inbox.has_work_within(_REST_S):
            return not self._inbox.is_closing
        self._holder.rest()
        self._keep_going(self._prepare)
        if not self._inbox.has_work_within(min(_LONG_REST_S, self._unload_after_s or _LONG_REST_S)):
            while not self._saving.step_at_rest() and not self._inbox.has_work_within(0):
                pass
            self._note_residency()
        while not self._inbox.has_work_within(self._unload_after_s if self._holder.is_loaded else None):
            self._unload()
        return not self._inbox.is_closing

    def _prepare(self) -> None:
        """Run the engine's idle work step by step until a request arrives."""
        while not self._inbox.has_work_within(0) and self._holder.prepare():
            pass

    def _begin(self, request: Request) -> None:
        request.queue_ms = (time.perf_counter() - request.submitted) * 1e3
        try:
            was_loaded = self._holder.is_loaded
            engine = self._holder.engine()
            if not was_loaded:
                self._note_residency()
            engine.begin(request)
        except DeviceLost:
            raise
        except MidfillError as error:  # there is no engine
            request.outcome = error
            self._finish(request)
        else:
            if request.has_ended:
                self._end([request])

    def _end(self, requests: Iterable[Request]) -> None:
        for request in requests:
            self._note_residency()
            self._finish(request)

    def _note_residency(self) -> None:
        """Keep the store's statistics as they are now; it loads no engine in place of one that is gone."""
        if (stats := self._holder.stats()) is not None:
            self._residency = stats

    def _free(self, *, disk: bool) -> None:
        waiting = self._to_notify[disk]
        served = [waiting.popleft() for _ in range(len(waiting))]  # who comes meanwhile has queued another chore
        error: MidfillError | None = None
        try:
            self._holder.free(disk=disk)
        except Exception as failure:
            log.exception("resident KV could not be freed")
            error = MidfillError(f"resident KV could not be freed: {failure!r}")
        self._note_residency()
        self._process_bytes = (-math.inf, "", 0)
        for on_done in served:
            self._keep_going(partial(on_done, error))

    def _forget_purged(self) -> None:
        digests = set[str]()
        while self._purged:
            digests.update(self._purged.popleft())
        self._holder.forget_purged(digests)

    def _finish(self, request: Request) -> None:
        """Deliver the outcome; a request that gave way has none and returns to the queue."""
        if self._inbox.end(request):
            self._deliver(request, self._answer(request))

    def _answer(self, request: Request) -> Completion | MidfillError:
        """The answer to an ended request, by the engine's outcome."""
        outcome = request.outcome
        assert outcome is not None
        if isinstance(outcome, MidfillError):
            return outcome
        if isinstance(outcome, Exception):
            log.error("a request of the session %s failed", request.session, exc_info=outcome)
            return MidfillError(f"the core failed: {outcome!r}")
        if request.cancelled or outcome.finish_reason == "cancelled":
            return Cancelled("superseded or cancelled")
        return replace(outcome, usage=replace(outcome.usage, queue_ms=request.queue_ms))

    def _deliver(self, request: Request, outcome: Completion | MidfillError) -> None:
        """Count the outcome, then report it. Logs an error in either, which stops neither the other nor the thread."""
        request.outcome = outcome
        self._count(request)
        self._keep_going(partial(request.changed, request), "the answer to a request could not be delivered")

    def _count(self, request: Request) -> None:
        if self._observe is not None:
            self._keep_going(partial(self._observe, request), "a request could not be counted")

    def _do_chores(self) -> None:
        """Run a slice of the chores; beside requests at work, slices are so far apart that they keep CHORES_SHARE."""
        started = now = time.monotonic()
        if self._inbox.running and started < self._chores_due:
            return
        while now - started < SLICE_S and (chore := self._inbox.take_chore()) is not None:
            self._keep_going(chore)
            now = time.monotonic()
        self._chores_due = now + (now - started) * (1 / CHORES_SHARE - 1)

    def _save(self, seconds: float, snapshots: bool) -> bool:
        try:
            return self._holder.save(seconds, snapshots=snapshots)
        except Exception:
            log.exception("saving failed; the core continues")
            return True

    def _unload(self) -> None:
        seconds = None if self._save_until == math.inf else max(0.0, self._save_until - time.monotonic())
        self._keep_going(partial(self._holder.unload, seconds))

    def _keep_going(self, act: Callable[[], None], failure: str = "housekeeping failed; the core continues") -> None:
        try:
            act()
        except Exception:
            log.exception(failure)


def _resident_bytes() -> int:
    """Of this process and of the engine that it has started; shared pages count in each."""
    process = psutil.Process()
    total = 0
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):  # it has just ended
            total += each.memory_info().rss
    return total
