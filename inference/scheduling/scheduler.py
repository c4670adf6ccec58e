"""Runs the one thread that uses the engine, and takes requests from other threads: submit, cancel, forget."""

from __future__ import annotations

import itertools
import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from msgspec.structs import replace

from inference.engine.active_request import ActiveRequest
from inference.scheduling.engine_holder import EngineHolder
from inference.scheduling.job_queue import Job, JobQueue, Outcome
from inference.scheduling.saving import SavingSchedule
from kv_store.interface import StoreStats
from protocol import garbage
from protocol.errors import Cancelled, DeviceLost, MidfillError
from protocol.messages import CompletionRequest, CoreStatus

_REST_S = 0.5
"""Seconds; usually longer than the pause between two keys of continuous typing."""

_LONG_REST_S = 5.0
"""Seconds without a request after which resident KV is saved."""

SHARE_FOR_SAVING = 0.6
"""Share of the closing time; the rest is for the forward in progress and for unloading."""

Observer = Callable[[CompletionRequest, Outcome], None]

log = logging.getLogger(__name__)


class Scheduler:
    """Fills the engine to its capacity with each session's newest request, shared evenly between clients.

    New requests begin between two forwards. When the engine is full, these give way to a waiting request within one
    forward, and resume later: ahead work (`max_tokens=0`), alternatives to another client's request, and the last begun
    request of a client that has at least two more at work than the waiting one's. Every request is answered exactly
    once, with a completion or with an error; `on_done` runs on the model thread, or on the thread whose call ended the
    request.
    """

    def __init__(
        self, holder: EngineHolder, unload_after_s: float | None = None, observe: Observer | None = None
    ) -> None:
        """Unloads the model after `unload_after_s` seconds without a request; calls `observe` with every answer."""
        self._holder = holder
        self._unload_after_s = unload_after_s
        self._observe = observe
        self._changed = threading.Condition()  # guards all fields below
        self._queue = JobQueue()
        self._running: list[Job] = []
        self._jobs: dict[ActiveRequest, Job] = {}  # for the model thread only
        self._to_forget: list[str] = []
        self._to_release: list[str] = []
        self._to_unload = False
        self._closing = False
        self._residency: StoreStats | None = None
        self._save_until = math.inf  # by time.monotonic(), when closing
        self._saving = SavingSchedule(self._save)
        self.lost: DeviceLost | None = None
        """Set when the process must end because it can no longer use its GPU."""
        self._ids = itertools.count(1)
        self._thread = threading.Thread(target=self._serve, name="model", daemon=True)
        self._thread.start()

    @property
    def status(self) -> CoreStatus:
        """The core's current status."""
        return self._holder.status

    @property
    def residency(self) -> StoreStats | None:
        """Store statistics after the last request; None while no model is loaded."""
        return self._residency if self._holder.is_loaded else None

    def submit(
        self,
        request: CompletionRequest,
        on_done: Callable[[Outcome], None],
        client: str = "",
        supersedes: bool = True,
    ) -> int:
        """Queue a request and return its id for `cancel`. Raises Busy if too many requests of this client wait.

        If it `supersedes`, older requests of the client's session fail with Cancelled.
        """
        with self._changed:
            if self._closing:
                raise Cancelled("the core is shutting down")
            job_id = next(self._ids)
            job = Job(job_id, (client, request.session if supersedes else f"#{job_id}"), request, on_done)
            superseded = self._queue.put(job)
            self._cancel_running(lambda running: running.key == job.key)
            self._make_room()  # now, before ahead work saves more of its prompt
            self._changed.notify()
        if superseded is not None:
            self._tell(superseded, Cancelled("a newer request of the same session arrived"))
        return job.id

    def cancel(self, job_id: int) -> None:
        """Answer a request with Cancelled: at once if it waits, within one forward if it runs."""
        with self._changed:
            waiting = self._queue.remove(job_id)
            self._cancel_running(lambda running: running.id == job_id)
        if waiting is not None:
            self._tell(waiting, Cancelled("the client cancelled it"))

    def forget(self, session: str, client: str = "") -> None:
        """Cancel the client's request of this session, and drop the text of its document for all clients."""
        key = (client, session)
        with self._changed:
            waiting = self._queue.withdraw(key)
            self._cancel_running(lambda running: running.key == key)
            self._to_forget.append(session)
            self._changed.notify()
        if waiting is not None:
            self._tell(waiting, Cancelled("the client asked the core to forget the session"))

    def release(self, session: str) -> None:
        """Unpin the KV of a closed document: the store may evict it by its ordinary rules."""
        with self._changed:
            self._to_release.append(session)
            self._changed.notify()

    def unload(self) -> None:
        """Unload the model as soon as no request is at work; the next request loads it again."""
        with self._changed:
            self._to_unload = True
            self._changed.notify()

    def close(self, timeout_s: float | None = None) -> bool:
        """Cancel all requests, save for at most `timeout_s`, unload the model and end the thread.

        Returns False if the thread is still busy at the deadline, for example loading a model. The process must then
        end without finalizing Python (`os._exit`), because finalization would stop the thread inside foreign code.
        """
        with self._changed:
            self._closing = True
            if timeout_s is not None:
                self._save_until = time.monotonic() + SHARE_FOR_SAVING * timeout_s
            waiting = self._queue.clear()
            for job in self._running:
                job.cancelled = True
            self._changed.notify()
        for job in waiting:
            self._tell(job, Cancelled("the core is shutting down"))
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _cancel_running(self, meant: Callable[[Job], bool]) -> None:
        for job in filter(meant, self._running):
            job.cancelled = True

    def _serve(self) -> None:
        while self._wait_for_work():
            try:
                self._go_on()
            except DeviceLost as error:
                log.critical("%s: the core exits, so that a new process can use the device", error)
                self._give_up(error)
                return
            except Exception as error:
                log.exception("the engine failed; the next request loads it again")
                self._abandon(MidfillError(f"the core failed: {error!r}"))
        self._keep_going(lambda: self._end(self._holder.drop_cancelled()))
        self._forget_sessions()
        self._unload()

    def _go_on(self) -> None:
        """Run one forward, and the work between two forwards."""
        self._end(self._holder.drop_cancelled())
        self._forget_sessions()
        self._saving.step_between_forwards()
        self._unload_if_asked()
        while True:
            if (job := self._take()) is not None:
                self._begin(job)
            elif self._make_room():
                self._end(self._holder.drop_cancelled())
            else:
                break
        self._end(self._holder.step())

    def _give_up(self, error: DeviceLost) -> None:
        """Answer every request with the error, end the thread and refuse later requests."""
        with self._changed:
            self.lost = error
            self._closing = True
            waiting = self._queue.clear()
        self._jobs.clear()
        for job in tuple(self._running):
            self._finish(job, error)
        for job in waiting:
            self._tell(job, error)
        self._keep_going(partial(self._holder.abandon, error))

    def _abandon(self, error: MidfillError) -> None:
        self._jobs.clear()
        for job in tuple(self._running):
            self._finish(job, error)
        self._unload()

    def _wait_for_work(self) -> bool:
        """Return when there is something to do; False when closing.

        After a short rest it collects garbage and lets the engine prepare; after a longer one it saves resident KV;
        after `unload_after_s` it unloads the model.
        """
        if not self._has_work_within(_REST_S):
            garbage.collect_what_is_new()
            self._keep_going(self._prepare)
        if not self._has_work_within(min(_LONG_REST_S, self._unload_after_s or _LONG_REST_S)):
            while not self._saving.step_at_rest() and not self._has_work_within(0):
                pass
        while not self._has_work_within(self._unload_after_s if self._holder.is_loaded else None):
            self._unload()
        return not self._closing

    def _prepare(self) -> None:
        """Run the engine's idle work step by step until a request arrives."""
        while not self._has_work_within(0) and self._holder.prepare():
            pass

    def _has_work_within(self, seconds: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(self._has_work, seconds)

    def _has_work(self) -> bool:
        chores = self._to_forget or self._to_release or self._to_unload
        return bool(self._closing or self._running or len(self._queue) or chores)

    def _take(self) -> Job | None:
        """The next job to begin, if there is room; ahead work only if nothing else is at work."""
        with self._changed:
            if self._closing or len(self._running) >= self._holder.capacity:
                return None
            job = self._queue.take(self._at_work(), all(running.is_ahead_work for running in self._running))
            if job is not None:
                self._running.append(job)
            return job

    def _make_room(self) -> bool:
        """Make a running job give way to the first waiting one, if necessary."""
        with self._changed:
            at_work = self._at_work()
            waiting = self._queue.first(at_work, ahead_too=False)
            staying = [job for job in self._running if not job.gives_way]
            if waiting is None or self._closing or len(staying) < self._holder.capacity:
                return False
            staying.reverse()  # the last begun loses the least work
            for job in sorted(staying, key=lambda job: (not job.is_ahead_work, not job.has_alternatives)):
                if _gives_way(job, waiting, at_work):
                    job.gives_way = True
                    return True
            return False

    def _at_work(self) -> Counter[str]:
        """Number of requests for suggestions at work, by client."""
        return Counter(job.client for job in self._running if not job.is_ahead_work)

    def _begin(self, job: Job) -> None:
        job.queue_ms = (time.perf_counter() - job.submitted) * 1e3
        try:
            run = self._holder.engine().begin(job.request, lambda: job.cancelled or job.gives_way, job.client)
        except DeviceLost:
            raise
        except MidfillError as error:  # there is no engine
            self._finish(job, error)
        else:
            self._jobs[run] = job
            if run.has_ended:
                self._end([run])

    def _end(self, runs: Iterable[ActiveRequest]) -> None:
        for run in runs:
            job = self._jobs.pop(run)
            self._residency = self._holder.engine().stats()
            self._finish(job, self._answer(run, job))

    def _answer(self, run: ActiveRequest, job: Job) -> Outcome | None:
        """The answer of an ended run; None if it was cancelled or gave way."""
        try:
            completion = run.completion()
        except MidfillError as error:
            return error
        except Exception as error:
            log.exception("request %d failed", job.id)
            return MidfillError(f"the core failed: {error!r}")
        if job.cancelled or completion.finish_reason == "cancelled":
            return None
        return replace(completion, usage=replace(completion.usage, queue_ms=job.queue_ms))

    def _finish(self, job: Job, answer: Outcome | None) -> None:
        """Deliver the answer; a job that gave way has none and returns to the queue."""
        with self._changed:
            self._running.remove(job)
            job.gives_way = False
            goes_on = answer is None and not (job.cancelled or self._closing) and self._queue.put_back(job)
        if not goes_on:
            self._tell(job, answer or Cancelled("superseded or cancelled"))

    def _tell(self, job: Job, answer: Outcome) -> None:
        """Count the answer, then deliver it. Logs an error in either, which stops neither the other nor the thread."""
        if self._observe is not None:
            self._keep_going(partial(self._observe, job.request, answer), f"request {job.id} could not be counted")
        self._keep_going(partial(job.on_done, answer), f"the answer to request {job.id} could not be delivered")

    def _forget_sessions(self) -> None:
        with self._changed:
            closed, self._to_release = self._to_release, []
            sessions, self._to_forget = self._to_forget, []
        for session in closed:
            self._keep_going(partial(self._holder.release, session))
        for session in sessions:
            self._keep_going(partial(self._holder.forget, session))

    def _save(self, seconds: float) -> bool:
        try:
            return self._holder.save(seconds)
        except Exception:
            log.exception("saving failed; the core goes on")
            return True

    def _unload_if_asked(self) -> None:
        with self._changed:
            asked = self._to_unload and not self._running
            self._to_unload = self._to_unload and not asked
        if asked:
            self._unload()

    def _unload(self) -> None:
        seconds = None if self._save_until == math.inf else max(0.0, self._save_until - time.monotonic())
        self._keep_going(partial(self._holder.unload, seconds))

    def _keep_going(self, act: Callable[[], None], failure: str = "housekeeping failed; the core goes on") -> None:
        try:
            act()
        except Exception:
            log.exception(failure)


def _gives_way(job: Job, waiting: Job, at_work: Counter[str]) -> bool:
    """Whether a running job must make room for a waiting request for a suggestion."""
    ahead_of = at_work[job.client] - at_work[waiting.client]
    if job.is_ahead_work or ahead_of >= 2:
        return True
    return ahead_of == 1 and job.has_alternatives and not waiting.has_alternatives
