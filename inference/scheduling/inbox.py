"""Hands requests and chores from clients' threads to the model thread, and chooses the requests that run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable

from inference.engine.request import Request
from inference.scheduling.job_queue import RequestQueue
from inference.scheduling.user_limits import TokenBudgets, UserLimits
from protocol.errors import Cancelled
from protocol.messages import Completion

Chore = Callable[[], None]


class Inbox:
    """Requests, waiting or at work, and chores for the model thread. All methods are thread-safe."""

    def __init__(self, capacity: Callable[[], int], wake: Callable[[], None], limits: UserLimits | None = None) -> None:
        """`capacity` returns the number of requests that can be at work at once; `wake` ends the engine's wait."""
        self._capacity = capacity
        self._wake = wake
        self._changed = threading.Condition()  # guards all fields below
        limits = limits or UserLimits()
        self._queue = RequestQueue(limits)
        self._budgets = TokenBudgets(limits.tokens_per_minute)
        self._running: list[Request] = []
        # Each by what tells equal ones apart, and with whether it waits until no request is at work.
        self._chores: dict[tuple[Hashable, bool], Chore] = {}
        self._closing = False

    @property
    def is_closing(self) -> bool:
        return self._closing

    @property
    def is_idle(self) -> bool:
        with self._changed:
            return not (self._running or len(self._queue))

    @property
    def running(self) -> tuple[Request, ...]:
        return tuple(self._running)

    @property
    def waiting(self) -> int:
        with self._changed:
            return len(self._queue)

    def put(self, request: Request) -> Request | None:
        """Queue a request; returns the waiting request that it supersedes.

        Raises Busy as `RequestQueue.put` and `TokenBudgets.check` do, and Cancelled after `close`.
        """
        with self._changed:
            if self._closing:
                raise Cancelled("the core is shutting down")
            self._budgets.check(request.turn)
            superseded = self._queue.put(request)
            self._cancel_running(lambda running: running.key == request.key)
            self._make_room()  # now, before ahead work saves more of its prompt
            self._notify()
            return superseded

    def cancel(self, meant: Callable[[Request], bool]) -> Request | None:
        """Mark the running requests that are `meant` as cancelled; removes and returns a waiting one."""
        with self._changed:
            self._cancel_running(meant)
            self._notify()
            return self._queue.remove(meant)

    def add(self, chore: Chore, name: Hashable = None, *, when_idle: bool = False) -> None:
        """Add work for the model thread, unless a chore of the same `name` waits (without one: an equal chore).

        It is done between two forwards, in the order of the calls; `when_idle` only while no request is at work.
        """
        with self._changed:
            self._chores.setdefault((chore if name is None else name, when_idle), chore)
            self._notify()

    def forget_answers(self) -> None:
        """Count every prompt as new: what was resident is gone."""
        with self._changed:
            self._queue.forget_answers()

    def close(self) -> list[Request]:
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

    def take(self) -> Request | None:
        """The next request to begin, if there is room; ahead work only if nothing else is at work."""
        with self._changed:
            if self._closing or len(self._running) >= self._capacity():
                return None
            request = self._queue.take(self._at_work(), all(running.is_ahead_work for running in self._running))
            if request is not None:
                self._running.append(request)
            return request

    def make_room(self) -> bool:
        """Make a running request give way to the first waiting one; False if none has to."""
        with self._changed:
            return self._make_room()

    def end(self, request: Request) -> bool:
        """Remove a request from those at work; False if it gave way and waits again, so that it needs no answer yet."""
        with self._changed:
            self._running.remove(request)
            request.gives_way, outcome = False, request.outcome
            if not isinstance(outcome, Completion):
                return True
            self._budgets.spend(request.turn, outcome.usage.recomputed_tokens + outcome.usage.generated_tokens)
            if not request.cancelled and outcome.finish_reason != "cancelled":
                self._queue.answered(request)
                return True
            return request.cancelled or self._closing or not self._queue.put_back(request)

    def take_chores(self, *, when_idle: bool) -> list[Chore]:
        """Remove and return the chores of this kind; none of those that wait while a request is at work."""
        with self._changed:
            if when_idle and self._running:
                return []
            names = [name for name in self._chores if name[1] == when_idle]
            return [self._chores.pop(name) for name in names]

    def _notify(self) -> None:
        """Show the model thread the change, whether it waits here or in the engine."""
        self._changed.notify()
        self._wake()

    def _has_work(self) -> bool:
        return bool(self._closing or self._running or len(self._queue) or self._chores)

    def _cancel_running(self, meant: Callable[[Request], bool]) -> None:
        for request in filter(meant, self._running):
            request.cancelled = True

    def _make_room(self) -> bool:
        if len(self._running) < self._capacity():
            return False
        at_work = self._at_work()
        waiting = self._queue.first(at_work, ahead_too=False)
        staying = [request for request in self._running if not (request.gives_way or request.cancelled)]
        if waiting is None or self._closing or len(staying) < self._capacity():
            return False
        staying.reverse()  # the last begun loses the least work
        for request in sorted(staying, key=lambda request: (not request.is_ahead_work, not request.writes_several)):
            if _gives_way(request, waiting, at_work):
                request.gives_way = True
                return True
        return False

    def _at_work(self) -> Counter[str]:
        """Number of requests for suggestions at work, by user; those that are cancelled end with the next forward."""
        return Counter(request.turn for request in self._running if not (request.is_ahead_work or request.cancelled))


def _gives_way(request: Request, waiting: Request, at_work: Counter[str]) -> bool:
    """Whether a running request must make room for a waiting request for a suggestion."""
    ahead_of = at_work[request.turn] - at_work[waiting.turn]
    if request.is_ahead_work or ahead_of >= 2:
        return True
    return ahead_of == 1 and request.writes_several and not waiting.writes_several
