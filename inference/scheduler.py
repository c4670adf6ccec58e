"""The one thread that uses the model, and what others ask of it: submit, cancel, forget."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from inference.engine_holder import EngineHolder
from inference.job_queue import Answer, Job, JobQueue
from kv_store.interface import StoreStats
from protocol.errors import Cancelled, MidfillError
from protocol.messages import CompletionRequest, CoreStatus

Observer = Callable[[CompletionRequest, Answer], None]

log = logging.getLogger(__name__)


class Scheduler:
    """Runs requests one at a time: each session's newest, in the order in which the sessions began to wait.

    Ahead work (`max_tokens=0`) runs when nothing else waits, stops within one forward when something does, and goes
    on afterwards. Every request is answered exactly once, with a completion or with the error that it met;
    `on_done` is called by the model thread, or by the thread whose call ended the request.
    """

    def __init__(
        self, holder: EngineHolder, unload_after_s: float | None = None, observe: Observer | None = None
    ) -> None:
        """The model is unloaded after `unload_after_s` without a request; `observe` is told every answer."""
        self._holder = holder
        self._unload_after_s = unload_after_s
        self._observe = observe
        self._changed = threading.Condition()  # guards all that follows
        self._queue = JobQueue()
        self._running: Job | None = None
        self._to_forget: list[str] = []
        self._closing = False
        self._residency: StoreStats | None = None
        self._ids = itertools.count(1)
        self._thread = threading.Thread(target=self._serve, name="model", daemon=True)
        self._thread.start()

    @property
    def status(self) -> CoreStatus:
        """What the core is doing."""
        return self._holder.status

    @property
    def residency(self) -> StoreStats | None:
        """What the store held after the last request; None while no model is loaded."""
        return self._residency if self._holder.is_loaded else None

    def submit(self, request: CompletionRequest, on_done: Callable[[Answer], None], client: str = "") -> int:
        """Queue a request; the id to cancel it by. Older requests of the client's session fail with Cancelled."""
        with self._changed:
            if self._closing:
                raise Cancelled("the core is shutting down")
            job = Job(next(self._ids), (client, request.session), request, on_done)
            superseded = self._queue.put(job)
            if self._running is not None and self._running.key == job.key:
                self._running.cancelled = True
            self._changed.notify()
        if superseded is not None:
            self._tell(superseded, Cancelled("a newer request of the same session came"))
        return job.id

    def cancel(self, job_id: int) -> None:
        """Answer a request with Cancelled: at once if it waits, within one forward if it runs."""
        with self._changed:
            waiting = self._queue.remove(job_id)
            if waiting is None and self._running is not None and self._running.id == job_id:
                self._running.cancelled = True
        if waiting is not None:
            self._tell(waiting, Cancelled("the client cancelled it"))

    def forget(self, session: str, client: str = "") -> None:
        """Cancel the client's request of this session, and drop what is resident for the session alone."""
        key = (client, session)
        with self._changed:
            waiting = self._queue.withdraw(key)
            if self._running is not None and self._running.key == key:
                self._running.cancelled = True
            self._to_forget.append(session)
            self._changed.notify()
        if waiting is not None:
            self._tell(waiting, Cancelled("its session is to be forgotten"))

    def close(self, timeout_s: float | None = None) -> None:
        """Cancel everything, unload the model and end the thread; a model that still loads is not waited for longer."""
        with self._changed:
            self._closing = True
            waiting = self._queue.clear()
            if self._running is not None:
                self._running.cancelled = True
            self._changed.notify()
        for job in waiting:
            self._tell(job, Cancelled("the core is shutting down"))
        self._thread.join(timeout_s)

    def _serve(self) -> None:
        while (job := self._next_job()) is not None:
            answer = self._run(job)
            with self._changed:
                self._running = None
                gave_way = answer is None and not job.cancelled
                goes_on = gave_way and not self._closing and self._queue.put_back(job)
            if not goes_on:
                self._tell(job, answer or Cancelled("superseded or cancelled"))
        self._keep_house([], unload=True)

    def _next_job(self) -> Job | None:
        """Wait for the next job, and do the housekeeping between jobs; None when closing."""
        while True:
            with self._changed:
                patience = self._unload_after_s if self._holder.is_loaded else None
                woken = self._changed.wait_for(self._has_work, patience)
                if self._closing:
                    return None
                sessions, self._to_forget = self._to_forget, []
                self._running = job = self._queue.take()
            self._keep_house(sessions, unload=not woken)
            if job is not None:
                return job

    def _has_work(self) -> bool:
        return self._closing or len(self._queue) > 0 or len(self._to_forget) > 0

    def _keep_house(self, to_forget: list[str], unload: bool) -> None:
        try:
            for session in to_forget:
                self._holder.forget(session)
            if unload:
                self._holder.unload()
        except Exception:
            log.exception("housekeeping failed; the core goes on")

    def _run(self, job: Job) -> Answer | None:
        """The answer to a job; None where it was cancelled or gave way."""
        queued_ms = (time.perf_counter() - job.submitted) * 1e3
        try:
            engine = self._holder.engine()
            completion = engine.complete(job.request, lambda: self._must_stop(job))
            self._residency = engine.stats()
        except MidfillError as error:
            return error
        except Exception as error:
            log.exception("request %d failed", job.id)
            return MidfillError(f"the core failed: {error!r}")
        if completion.finish_reason == "cancelled":
            return None
        return replace(completion, usage=replace(completion.usage, queue_ms=queued_ms))

    def _must_stop(self, job: Job) -> bool:
        if job.cancelled or not job.is_ahead_work:
            return job.cancelled
        with self._changed:
            return self._queue.somebody_waits

    def _tell(self, job: Job, answer: Answer) -> None:
        """A listener's failure is its own: the model thread goes on."""
        try:
            if self._observe is not None:
                self._observe(job.request, answer)
            job.on_done(answer)
        except Exception:
            log.exception("the answer to request %d could not be delivered", job.id)
