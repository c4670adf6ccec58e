"""The queue of requests: one line per user with its limits, handed from clients' threads to the model thread."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from itertools import chain

from inference.engine.request import Request
from kv_store.interface import SessionKey
from protocol.errors import Busy, Cancelled
from protocol.messages import Completion

MAX_WAITING = 64
"""Most requests of a user that wait; a client without a user counts as one. Prefetches count apart."""

MAX_WAITING_CHARS = 32 * 2**20
"""Most characters of one user's waiting prompts; a single request may exceed it."""

CHARS_PER_ID = 4  # what a token id counts as

Key = tuple[str, SessionKey | int]  # of `Request.key`


class RequestQueue:
    """At most one request per session. Not thread-safe: the owner holds a lock."""

    def __init__(self) -> None:
        self.lines: dict[str, dict[Key, Request]] = {}
        """By user, in the order of their turns; no line is empty."""

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(line.values() for line in self.lines.values())

    def put(self, request: Request) -> Request | None:
        """Add a request to its user's line; replaces and returns the older request of its session.

        Raises Busy, and changes nothing, if the user exceeds MAX_WAITING or MAX_WAITING_CHARS. Each
        holds for prefetches apart, which may wait for long and must not keep suggestions out.
        """
        line = self.lines.get(request.turn, {})
        waiting = (other for other in line.values() if other.is_prefetch == request.is_prefetch)
        others = [other for other in waiting if other.key != request.key]
        if len(others) >= MAX_WAITING:
            raise Busy(f"{len(others)} requests already wait, the maximum")
        if others and _chars(request) + sum(_chars(other) for other in others) > MAX_WAITING_CHARS:
            raise Busy(f"the waiting prompts would exceed {MAX_WAITING_CHARS} characters")
        superseded = line.get(request.key)
        self.lines.setdefault(request.turn, line)[request.key] = request
        return superseded

    def put_back(self, request: Request) -> bool:
        """Put a request that gave way at the end of its user's line; False if its session has a newer one."""
        return self.lines.setdefault(request.turn, {}).setdefault(request.key, request) is request

    def remove(self, meant: Callable[[Request], bool]) -> Request | None:
        """Remove and return the first waiting request that is `meant`; None if there is none."""
        request = next(filter(meant, self), None)
        return None if request is None else self._pop(request)

    def first(self, at_work: Mapping[str, int], with_prefetches: bool, prefetching: Collection[str] = ()) -> Request | None:
        """The request to begin next: a prefetch only if nothing else waits, only if `with_prefetches`, and not of users
        whose prefetch is under way (`prefetching`): together both would take longer, and need more workspaces.

        The user with the fewest requests `at_work` comes first; among equals, requests without alternatives, and then the
        user whose last turn is the longest ago, or who has waited the longest without one.
        """
        firsts = [request for line in self.lines.values() for request in _first_for_suggestion(line)]
        if firsts:
            return min(firsts, key=lambda request: (at_work.get(request.turn, 0), request.writes_several))
        return next((request for request in self if request.turn not in prefetching), None) if with_prefetches else None

    def take(self, at_work: Mapping[str, int], with_prefetches: bool = True, prefetching: Collection[str] = ()) -> Request | None:
        """Remove and return the `first` request; its user's turn moves behind those of the others."""
        request = self.first(at_work, with_prefetches, prefetching)
        if request is None:
            return None
        self.lines[request.turn] = self.lines.pop(request.turn)
        return self._pop(request)

    def clear(self) -> list[Request]:
        requests = list(self)
        self.lines.clear()
        return requests

    def _pop(self, request: Request) -> Request:
        line = self.lines[request.turn]
        del line[request.key]
        if not line:
            del self.lines[request.turn]
        return request


def _chars(request: Request) -> int:
    """Length of the prompt and of the stop texts."""
    prompt = request.spec.prompt
    of_files = (text for chunk in prompt.context for text in (chunk.path, chunk.text))
    texts = (prompt.prefix, prompt.suffix, prompt.increment, *prompt.marked, *of_files, *request.spec.stop_texts)
    return sum(map(len, texts)) + CHARS_PER_ID * len(prompt.token_ids)


def _first_for_suggestion(line: Mapping[Key, Request]) -> list[Request]:
    return [request for request in line.values() if not request.is_prefetch][:1]


Chore = Callable[[], None]

MAX_CHORES = 1024
"""Most chores of one user that wait."""


class Inbox:
    """Requests, waiting or at work, and chores for the model thread. All methods are thread-safe."""

    def __init__(self, capacity: Callable[[], int], wake: Callable[[], None]) -> None:
        """`capacity` returns the number of requests that can be at work at once; `wake` ends the engine's wait."""
        self._capacity = capacity
        self._wake = wake
        self._changed = threading.Condition()  # guards all changes of the fields below
        self._queue = RequestQueue()
        self._running: list[Request] = []
        # By what tells equal ones apart: of each user, the next one first, and those for when no request is at work.
        self._chores: dict[str, dict[Hashable, Chore]] = {}
        self._chores_when_idle: dict[Hashable, Chore] = {}
        self._closing = False

    @property
    def is_closing(self) -> bool:
        return self._closing

    @property
    def has_waiting(self) -> bool:
        """Whether a request waits to begin."""
        return bool(self._queue.lines)

    @property
    def running(self) -> tuple[Request, ...]:
        return tuple(self._running)

    def put(self, request: Request) -> Request | None:
        """Queue a request; returns the waiting request that it supersedes.

        Raises Busy as `RequestQueue.put` does, and Cancelled after `close`.
        """
        with self._changed:
            if self._closing:
                raise Cancelled("the core is shutting down")
            superseded = self._queue.put(request)
            self._cancel_running(lambda running: running.key == request.key)
            for running in self._running:  # the user is where the newest prefetch is
                running.gives_way |= request.is_prefetch and running.is_prefetch and running.turn == request.turn
            self._make_room()  # now, before a prefetch saves more of its prompt
            self._notify()
            return superseded

    def cancel(self, meant: Callable[[Request], bool]) -> Request | None:
        """Mark the running requests that are `meant` as cancelled; removes and returns a waiting one."""
        with self._changed:
            self._cancel_running(meant)
            self._notify()
            return self._queue.remove(meant)

    def add(self, chore: Chore, name: Hashable, turn: str = "") -> None:
        """Add a user's work for the model thread, unless a chore of the same `name` waits in the user's line.

        Raises Busy if MAX_CHORES wait there.
        """
        with self._changed:
            line = self._chores.get(turn, {})
            if name not in line and len(line) >= MAX_CHORES:
                raise Busy(f"{len(line)} documents of this user already wait to be forgotten or released, the maximum")
            self._chores.setdefault(turn, line).setdefault(name, chore)
            self._notify()

    def add_when_idle(self, chore: Chore, name: Hashable) -> None:
        """Add work to be done while no request is at work, unless a chore of the same `name` waits."""
        with self._changed:
            self._chores_when_idle.setdefault(name, chore)
            self._notify()

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
        """The next request to begin, if there is room; prefetches only if nothing else is at work.

        A chore that waits until nothing is at work lets none begin before it: otherwise it might wait forever.
        """
        with self._changed:
            if self._closing or (self._running and self._chores_when_idle) or len(self._running) >= self._capacity():
                return None
            prefetches = [running for running in self._running if running.is_prefetch]
            turns = {running.turn for running in prefetches}
            request = self._queue.take(self._at_work(), len(prefetches) == len(self._running), turns)
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
            has_answer = request.cancelled or outcome.finish_reason != "cancelled"
            if has_answer or self._closing or not self._queue.put_back(request):
                return True
            request.outcome = None
            return False

    def take_chore(self) -> Chore | None:
        """Remove and return the next chore, of users in turn; None if none waits."""
        with self._changed:
            if not self._chores:
                return None
            turn = next(iter(self._chores))
            line = self._chores.pop(turn)
            chore = line.pop(next(iter(line)))
            if line:
                self._chores[turn] = line
            return chore

    def take_chores_when_idle(self) -> list[Chore]:
        """Remove and return the chores that wait for the end of work; none while a request is at work."""
        with self._changed:
            if self._running:
                return []
            chores = list(self._chores_when_idle.values())
            self._chores_when_idle.clear()
            return chores

    def _notify(self) -> None:
        """Show the model thread the change, whether it waits here or in the engine."""
        self._changed.notify()
        self._wake()

    def _has_work(self) -> bool:
        return bool(self._closing or self._running or self._queue.lines or self._chores or self._chores_when_idle)

    def _cancel_running(self, meant: Callable[[Request], bool]) -> None:
        for request in filter(meant, self._running):
            request.cancelled = True

    def _make_room(self) -> bool:
        if len(self._running) < self._capacity():
            return False
        at_work = self._at_work()
        waiting = self._queue.first(at_work, with_prefetches=False)
        staying = [request for request in self._running if not (request.gives_way or request.cancelled)]
        if waiting is None or self._closing or len(staying) < self._capacity():
            return False
        staying.reverse()  # the last begun loses the least work
        for request in sorted(staying, key=lambda request: (not request.is_prefetch, not request.writes_several)):
            if _gives_way(request, waiting, at_work):
                request.gives_way = True
                return True
        return False

    def _at_work(self) -> Counter[str]:
        """Number of requests for suggestions at work, by user; those that are cancelled end with the next forward."""
        return Counter(request.turn for request in self._running if not (request.is_prefetch or request.cancelled))


def _gives_way(request: Request, waiting: Request, at_work: Counter[str]) -> bool:
    """Whether a running request must make room for a waiting request for a suggestion."""
    more = at_work[request.turn] - at_work[waiting.turn]
    if request.is_prefetch or more >= 2:
        return True
    return more == 1 and request.writes_several and not waiting.writes_several
