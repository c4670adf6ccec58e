"""Queues waiting requests: one line per user, where a newer request replaces its session's older one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from inference.engine.active_request import OnPrefill, OnText
from inference.scheduling.user_limits import UserLimits
from protocol.errors import Busy, Cancelled, MidfillError
from protocol.messages import Completion, CompletionRequest

MAX_WAITING_CHARS = 32 * 2**20
"""Most characters of one user's waiting prompts; a single request may exceed it."""

CHARS_PER_ID = 4  # what a token id counts as

NEW_TEXT_CHARS = 600
"""Characters of a prompt that take about as long as what every request computes: a few tokens typed, some generated."""

MAX_TYPED_CHARS = 2_400
"""Characters of an increment that count as resident with its prompt; language servers lay a new anchor before that."""

_MAX_ANSWERED = 4096  # prompts that are remembered as answered

Outcome = Completion | MidfillError
SessionKey = tuple[str, str]  # client and session


def kind_of(request: CompletionRequest) -> str:
    """A request's kind, for counters: "ahead" if it only makes a prompt resident, else "suggestion"."""
    return "ahead" if request.max_tokens == 0 else "suggestion"


def outcome_of(answer: Outcome) -> str:
    """What became of a request, for counters: "completed", "refused", "cancelled" or "failed"."""
    if isinstance(answer, Completion):
        return "completed"
    if isinstance(answer, Busy):
        return "refused"
    return "cancelled" if isinstance(answer, Cancelled) else "failed"


@dataclass(slots=True, eq=False)
class Job:
    """One request, and the callback for its answer. Other threads set `cancelled` while the model thread runs it."""

    id: int
    key: SessionKey
    request: CompletionRequest
    on_done: Callable[[Outcome], None]
    on_prefill: OnPrefill = lambda *_: None
    on_text: OnText | None = None  # receives the text while it grows, on the engine's thread
    submitted: float = field(default_factory=time.perf_counter)
    unanswered_since: float = field(default_factory=time.perf_counter)  # of the first key that waits for an answer
    queue_ms: float = 0.0  # from its submission until it last began
    cancelled: bool = False
    gives_way: bool = False  # returns to the queue to make room for another user's request
    user: str = ""  # empty for the core's own token
    tokens: int = 0  # computed for it since it last began: recomputed and generated ones

    @property
    def turn(self) -> str:
        """The line that it waits in: its user's, or its client's if it has no user."""
        return f"user {self.user}" if self.user else self.key[0]

    @property
    def is_ahead_work(self) -> bool:
        """Whether it only makes a prompt resident, and so gives way to every request for a suggestion."""
        return self.request.max_tokens == 0

    @property
    def writes_several(self) -> bool:
        return self.request.alternatives > 0 or self.request.best_of > 1

    @property
    def layout(self) -> int:
        """A digest of the user and the prompt's parts that stay while the user types on."""
        prompt = self.request.prompt
        return hash((self.turn, prompt.context, prompt.prefix, prompt.suffix, prompt.token_ids))

    @property
    def chars(self) -> int:
        """Length of the prompt and of the stop texts."""
        prompt = self.request.prompt
        of_files = (text for chunk in prompt.context for text in (chunk.path, chunk.text))
        texts = (prompt.prefix, prompt.suffix, prompt.increment, *of_files, *self.request.stop_texts)
        return sum(map(len, texts)) + CHARS_PER_ID * len(prompt.token_ids)


class JobQueue:
    """At most one job per session. Not thread-safe: the owner holds a lock."""

    def __init__(self, limits: UserLimits | None = None) -> None:
        self._limits = limits or UserLimits()
        self._lines: dict[str, dict[SessionKey, Job]] = {}  # by user
        self._last_turns: dict[str, float] = {}  # of users who have a line
        self._answered: dict[int, None] = {}  # layouts of the last answered prompts, the newest last

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __iter__(self) -> Iterator[Job]:
        return chain.from_iterable(line.values() for line in self._lines.values())

    def put(self, job: Job) -> Job | None:
        """Add a job to its user's line; replaces and returns the older job of its session.

        Raises Busy, and changes nothing, if the user exceeds the limit of waiting requests or MAX_WAITING_CHARS. Each
        holds for ahead work apart, which may wait for long and must not keep suggestions out.
        """
        line = self._lines.get(job.turn, {})
        waiting = (other for other in line.values() if other.is_ahead_work == job.is_ahead_work)
        others = [other for other in waiting if other.key != job.key]
        if len(others) >= self._limits.waiting:
            raise Busy(f"{len(others)} requests already wait, the maximum")
        if others and job.chars + sum(other.chars for other in others) > MAX_WAITING_CHARS:
            raise Busy(f"the waiting prompts would exceed {MAX_WAITING_CHARS} characters")
        superseded = line.get(job.key)
        if superseded is not None and not superseded.is_ahead_work:
            job.unanswered_since = superseded.unanswered_since
        self._lines.setdefault(job.turn, line)[job.key] = job
        return superseded

    def put_back(self, job: Job) -> bool:
        """Put a job that gave way at the end of its user's line; False if its session has a newer one."""
        self._last_turns[job.turn] = time.perf_counter()
        return self._lines.setdefault(job.turn, {}).setdefault(job.key, job) is job

    def remove(self, meant: Callable[[Job], bool]) -> Job | None:
        """Remove and return the first waiting job that is `meant`; None if there is none."""
        job = next(filter(meant, self), None)
        return None if job is None else self._pop(job)

    def first(self, at_work: Mapping[str, int], ahead_too: bool) -> Job | None:
        """The job to begin next: ahead work only if nothing else waits, and only if `ahead_too`.

        The user with the fewest requests `at_work` comes first; one with as many as allowed has to wait. Among equals,
        requests without alternatives come first, and then the one with the highest response ratio: the longest wait
        since its user's last turn for what it probably costs. Where there is more to do than can be done, this answers
        resident prompts before their users type on, and new ones once their users have paused long enough.
        """
        firsts = [job for line in self._lines.values() for job in _first_for_suggestion(line)]
        if firsts:
            most = self._limits.requests
            free = [job for job in firsts if most is None or at_work.get(job.turn, 0) < most]
            now = time.perf_counter()
            return min(
                free,
                key=lambda job: (at_work.get(job.turn, 0), job.writes_several, -self._response_ratio(job, now)),
                default=None,
            )
        return next(iter(self), None) if ahead_too else None

    def take(self, at_work: Mapping[str, int], ahead_too: bool = True) -> Job | None:
        """Remove and return the `first` job; its user's turn moves behind those of the others."""
        job = self.first(at_work, ahead_too)
        if job is None:
            return None
        self._lines[job.turn] = self._lines.pop(job.turn)  # the order of turns at ahead work
        self._last_turns[job.turn] = time.perf_counter()
        return self._pop(job)

    def answered(self, job: Job) -> None:
        """Remember that the job's prompt is probably resident."""
        self._answered.pop(job.layout, None)
        self._answered[job.layout] = None
        if len(self._answered) > _MAX_ANSWERED:
            del self._answered[next(iter(self._answered))]

    def forget_answers(self) -> None:
        """Count every prompt as new."""
        self._answered.clear()

    def clear(self) -> list[Job]:
        jobs = list(self)
        self._lines.clear()
        self._last_turns.clear()
        return jobs

    def _response_ratio(self, job: Job, now: float) -> float:
        """The wait for each character that probably has to be computed.

        A user who types on waits since the first unanswered key only for a resident prompt. A new one would be
        cancelled before it is answered, so it gives way to those of users who have paused.
        """
        is_resident = job.layout in self._answered
        since = job.unanswered_since if is_resident else job.submitted
        new_chars = max(0, len(job.request.prompt.increment) - MAX_TYPED_CHARS) if is_resident else job.chars
        cost = NEW_TEXT_CHARS + new_chars
        return (now - max(since, self._last_turns.get(job.turn, 0.0))) / cost

    def _pop(self, job: Job) -> Job:
        line = self._lines[job.turn]
        del line[job.key]
        if not line:
            del self._lines[job.turn]
            self._last_turns.pop(job.turn, None)
        return job


def _first_for_suggestion(line: Mapping[SessionKey, Job]) -> list[Job]:
    return [job for job in line.values() if not job.is_ahead_work][:1]
