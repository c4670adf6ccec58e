"""Queues waiting requests: one line per user, where a newer request replaces its session's older one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from inference.engine.request import Request
from inference.scheduling.user_limits import UserLimits
from protocol.errors import Busy

MAX_WAITING_CHARS = 32 * 2**20
"""Most characters of one user's waiting prompts; a single request may exceed it."""

CHARS_PER_ID = 4  # what a token id counts as

NEW_TEXT_CHARS = 600
"""Characters of a prompt that take about as long as what every request computes: a few tokens typed, some generated."""

MAX_TYPED_CHARS = 2_400
"""Characters of an increment that count as resident with its prompt; language servers lay a new anchor before that."""

_MAX_ANSWERED = 4096  # prompts that are remembered as answered

Key = tuple[str, str]  # client and session


class RequestQueue:
    """At most one request per session. Not thread-safe: the owner holds a lock."""

    def __init__(self, limits: UserLimits | None = None) -> None:
        self._limits = limits or UserLimits()
        self._lines: dict[str, dict[Key, Request]] = {}  # by user
        self._last_turns: dict[str, float] = {}  # of users who have a line
        self._answered: dict[int, None] = {}  # layouts of the last answered prompts, the newest last

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[Request]:
        return chain.from_iterable(line.values() for line in self._lines.values())

    def put(self, request: Request) -> Request | None:
        """Add a request to its user's line; replaces and returns the older request of its session.

        Raises Busy, and changes nothing, if the user exceeds the limit of waiting requests or MAX_WAITING_CHARS. Each
        holds for ahead work apart, which may wait for long and must not keep suggestions out.
        """
        line = self._lines.get(request.turn, {})
        waiting = (other for other in line.values() if other.is_ahead_work == request.is_ahead_work)
        others = [other for other in waiting if other.key != request.key]
        if len(others) >= self._limits.waiting:
            raise Busy(f"{len(others)} requests already wait, the maximum")
        if others and _chars(request) + sum(_chars(other) for other in others) > MAX_WAITING_CHARS:
            raise Busy(f"the waiting prompts would exceed {MAX_WAITING_CHARS} characters")
        superseded = line.get(request.key)
        if superseded is not None and not superseded.is_ahead_work:
            request.unanswered_since = superseded.unanswered_since
        self._lines.setdefault(request.turn, line)[request.key] = request
        return superseded

    def put_back(self, request: Request) -> bool:
        """Put a request that gave way at the end of its user's line; False if its session has a newer one."""
        self._last_turns[request.turn] = time.perf_counter()
        return self._lines.setdefault(request.turn, {}).setdefault(request.key, request) is request

    def remove(self, meant: Callable[[Request], bool]) -> Request | None:
        """Remove and return the first waiting request that is `meant`; None if there is none."""
        request = next(filter(meant, self), None)
        return None if request is None else self._pop(request)

    def first(self, at_work: Mapping[str, int], ahead_too: bool) -> Request | None:
        """The request to begin next: ahead work only if nothing else waits, and only if `ahead_too`.

        The user with the fewest requests `at_work` comes first; one with as many as allowed has to wait. Among equals,
        requests without alternatives come first, and then the one with the highest response ratio: the longest wait
        since its user's last turn for what it probably costs. Where there is more to do than can be done, this answers
        resident prompts before their users type on, and new ones once their users have paused long enough.
        """
        firsts = [request for line in self._lines.values() for request in _first_for_suggestion(line)]
        if firsts:
            most = self._limits.requests
            free = [request for request in firsts if most is None or at_work.get(request.turn, 0) < most]
            now = time.perf_counter()
            return min(
                free,
                key=lambda request: (
                    at_work.get(request.turn, 0),
                    request.writes_several,
                    -self._response_ratio(request, now),
                ),
                default=None,
            )
        return next(iter(self), None) if ahead_too else None

    def take(self, at_work: Mapping[str, int], ahead_too: bool = True) -> Request | None:
        """Remove and return the `first` request; its user's turn moves behind those of the others."""
        request = self.first(at_work, ahead_too)
        if request is None:
            return None
        self._lines[request.turn] = self._lines.pop(request.turn)  # the order of turns at ahead work
        self._last_turns[request.turn] = time.perf_counter()
        return self._pop(request)

    def answered(self, request: Request) -> None:
        """Remember that the request's prompt is probably resident."""
        self._answered.pop(_layout(request), None)
        self._answered[_layout(request)] = None
        if len(self._answered) > _MAX_ANSWERED:
            del self._answered[next(iter(self._answered))]

    def forget_answers(self) -> None:
        """Count every prompt as new."""
        self._answered.clear()

    def clear(self) -> list[Request]:
        requests = list(self)
        self._lines.clear()
        self._last_turns.clear()
        return requests

    def _response_ratio(self, request: Request, now: float) -> float:
        """The wait for each character that probably has to be computed.

        A user who types on waits since the first unanswered key only for a resident prompt. A new one would be
        cancelled before it is answered, so it gives way to those of users who have paused.
        """
        is_resident = _layout(request) in self._answered
        since = request.unanswered_since if is_resident else request.submitted
        new_chars = max(0, len(request.spec.prompt.increment) - MAX_TYPED_CHARS) if is_resident else _chars(request)
        cost = NEW_TEXT_CHARS + new_chars
        return (now - max(since, self._last_turns.get(request.turn, 0.0))) / cost

    def _pop(self, request: Request) -> Request:
        line = self._lines[request.turn]
        del line[request.key]
        if not line:
            del self._lines[request.turn]
            self._last_turns.pop(request.turn, None)
        return request


def _layout(request: Request) -> int:
    """A digest of the user and the prompt's parts that stay while the user types on."""
    prompt = request.spec.prompt
    return hash((request.turn, prompt.context, prompt.prefix, prompt.suffix, prompt.token_ids))


def _chars(request: Request) -> int:
    """Length of the prompt and of the stop texts."""
    prompt = request.spec.prompt
    of_files = (text for chunk in prompt.context for text in (chunk.path, chunk.text))
    texts = (prompt.prefix, prompt.suffix, prompt.increment, *of_files, *request.spec.stop_texts)
    return sum(map(len, texts)) + CHARS_PER_ID * len(prompt.token_ids)


def _first_for_suggestion(line: Mapping[Key, Request]) -> list[Request]:
    return [request for request in line.values() if not request.is_ahead_work][:1]
