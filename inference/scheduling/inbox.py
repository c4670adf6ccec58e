"""Hands requests and chores from clients' threads to the model thread, and chooses the requests that run."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable

from inference.engine.active_request import OnPrefill, OnText
from inference.scheduling.job_queue import Job, JobQueue, Outcome, SessionKey
from inference.scheduling.user_limits import TokenBudgets, UserLimits
from protocol.errors import Cancelled
from protocol.messages import CompletionRequest

Chore = Callable[[], None]


class Inbox:
    """Requests, waiting or at work, and chores for the model thread. All methods are thread-safe."""

    def __init__(self, capacity: Callable[[], int], wake: Callable[[], None], limits: UserLimits | None = None) -> None:
        """`capacity` returns the number of requests that can be at work at once; `wake` ends the engine's wait."""
        self._capacity = capacity
        self._wake = wake
        self._changed = threading.Condition()  # guards all fields below
        limits = limits or UserLimits()
        self._queue = JobQueue(limits)
        self._budgets = TokenBudgets(limits.tokens_per_minute)
        self._running: list[Job] = []
        self._to_forget: list[str] = []
        self._to_release: list[str] = []
        self._to_unload = False
        self._to_free: list[Chore] = []
        self._to_look = False
        self._closing = False
        self._ids = itertools.count(1)

    @property
    def is_closing(self) -> bool:
        return self._closing

    @property
    def is_idle(self) -> bool:
        """Whether no request waits or is at work."""
        with self._changed:
            return not (self._running or len(self._queue))

    @property
    def running(self) -> tuple[Job, ...]:
        """The jobs at work."""
        return tuple(self._running)

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        with self._changed:
            return len(self._queue)

    def put(
        self,
        request: CompletionRequest,
        on_done: Callable[[Outcome], None],
        client: str,
        supersedes: bool,
        on_prefill: OnPrefill = lambda *_: None,
        on_text: OnText | None = None,
        user: str = "",
    ) -> tuple[Job, Job | None]:
        """Queue a request; returns its job, and the waiting job that it supersedes.

        Raises Busy as `JobQueue.put` and `TokenBudgets.check` do, and Cancelled after `close`.
        """
        with self._changed:
            if self._closing:
                raise Cancelled("the core is shutting down")
            job_id = next(self._ids)
            key = client, request.session if supersedes else f"#{job_id}"
            job = Job(job_id, key, request, on_done, on_prefill, on_text, user=user)
            self._budgets.check(job.turn)
            superseded = self._queue.put(job)
            self._cancel_running(lambda running: running.key == job.key)
            self._make_room()  # now, before ahead work saves more of its prompt
            self._notify()
            return job, superseded

    def cancel(self, job_id: int) -> Job | None:
        """Mark a running request as cancelled; removes and returns a waiting one."""
        with self._changed:
            self._cancel_running(lambda running: running.id == job_id)
            self._notify()
            return self._queue.remove(job_id)

    def forget(self, key: SessionKey) -> Job | None:
        """Cancel the session's request as `cancel` does, and add the chore to forget its document."""
        with self._changed:
            self._cancel_running(lambda running: running.key == key)
            self._to_forget.append(key[1])
            self._notify()
            return self._queue.withdraw(key)

    def release(self, session: str) -> None:
        """Add the chore to unpin a session."""
        with self._changed:
            self._to_release.append(session)
            self._changed.notify()

    def unload(self) -> None:
        """Add the chore to unload the model."""
        with self._changed:
            self._to_unload = True
            self._changed.notify()

    def free(self, chore: Chore) -> None:
        """Add a chore that frees resident KV."""
        with self._changed:
            self._to_free.append(chore)
            self._changed.notify()

    def look(self) -> None:
        """Add the chore to show the watcher what is resident."""
        with self._changed:
            self._to_look = True
            self._changed.notify()

    def close(self) -> list[Job]:
        """Accept no more requests and cancel the running ones; removes and returns the waiting ones."""
        with self._changed:
            self._closing = True
            self._cancel_running(lambda _: True)
            self._notify()
            return self._queue.clear()

    def has_work_within(self, seconds: float | None) -> bool:
        """Wait at most `seconds` (None: without a limit) until there is work or the inbox closes."""
        with self._changed:
            return self._changed.wait_for(self._has_work, seconds)

    def take(self) -> Job | None:
        """The next job to begin, if there is room; ahead work only if nothing else is at work."""
        with self._changed:
            if self._closing or len(self._running) >= self._capacity():
                return None
            job = self._queue.take(self._at_work(), all(running.is_ahead_work for running in self._running))
            if job is not None:
                self._running.append(job)
            return job

    def make_room(self) -> bool:
        """Make a running job give way to the first waiting one; False if none has to."""
        with self._changed:
            return self._make_room()

    def end(self, job: Job, *, answered: bool) -> bool:
        """Remove a job from those at work; False if it gave way and waits again, so that it needs no answer yet."""
        with self._changed:
            self._running.remove(job)
            job.gives_way = False
            self._budgets.spend(job.turn, job.tokens)
            job.tokens = 0
            if answered:
                self._queue.answered(job)
            return answered or job.cancelled or self._closing or not self._queue.put_back(job)

    def take_sessions(self) -> tuple[list[str], list[str]]:
        """Remove and return the sessions to release, and those to forget."""
        with self._changed:
            released, self._to_release = self._to_release, []
            forgotten, self._to_forget = self._to_forget, []
            return released, forgotten

    def take_unload(self) -> bool:
        """Whether to unload the model now: only while no request is at work."""
        with self._changed:
            wanted = self._to_unload and not self._running
            self._to_unload = self._to_unload and not wanted
            return wanted

    def take_free(self) -> list[Chore]:
        """Remove and return the chores that free KV: only while no request is at work."""
        with self._changed:
            if self._running:
                return []
            taken, self._to_free = self._to_free, []
            return taken

    def take_look(self) -> bool:
        """Whether the watcher waits for a sight."""
        with self._changed:
            wanted, self._to_look = self._to_look, False
            return wanted

    def _notify(self) -> None:
        """Show the model thread the change, whether it waits here or in the engine."""
        self._changed.notify()
        self._wake()

    def _has_work(self) -> bool:
        chores = self._to_forget or self._to_release or self._to_unload or self._to_free or self._to_look
        return bool(self._closing or self._running or len(self._queue) or chores)

    def _cancel_running(self, meant: Callable[[Job], bool]) -> None:
        for job in filter(meant, self._running):
            job.cancelled = True

    def _make_room(self) -> bool:
        at_work = self._at_work()
        waiting = self._queue.first(at_work, ahead_too=False)
        staying = [job for job in self._running if not job.gives_way]
        if waiting is None or self._closing or len(staying) < self._capacity():
            return False
        staying.reverse()  # the last begun loses the least work
        for job in sorted(staying, key=lambda job: (not job.is_ahead_work, not job.has_alternatives)):
            if _gives_way(job, waiting, at_work):
                job.gives_way = True
                return True
        return False

    def _at_work(self) -> Counter[str]:
        """Number of requests for suggestions at work, by user."""
        return Counter(job.turn for job in self._running if not job.is_ahead_work)


def _gives_way(job: Job, waiting: Job, at_work: Counter[str]) -> bool:
    """Whether a running job must make room for a waiting request for a suggestion."""
    ahead_of = at_work[job.turn] - at_work[waiting.turn]
    if job.is_ahead_work or ahead_of >= 2:
        return True
    return ahead_of == 1 and job.has_alternatives and not waiting.has_alternatives
