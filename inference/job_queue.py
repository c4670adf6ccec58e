"""Who is served next: each session's newest request, ahead work last."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from protocol.errors import MidfillError
from protocol.messages import Completion, CompletionRequest

Answer = Completion | MidfillError
SessionKey = tuple[str, str]  # client and session


@dataclass(slots=True, eq=False)
class Job:
    """One request, and whom to tell. `cancelled` is set by others while the model thread runs it."""

    id: int
    key: SessionKey
    request: CompletionRequest
    on_done: Callable[[Answer], None]
    submitted: float = field(default_factory=time.perf_counter)
    queue_ms: float = 0.0  # in line, until it was last begun
    cancelled: bool = False

    @property
    def is_ahead_work(self) -> bool:
        """Whether it only makes a prompt resident, and so gives way to what somebody waits for."""
        return self.request.max_tokens == 0


class JobQueue:
    """Jobs in the order of service, at most one per session. Not safe for threads: its owner holds a lock."""

    def __init__(self) -> None:
        self._waiting: dict[SessionKey, Job] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def somebody_waits(self) -> bool:
        """Whether a request other than ahead work is in line."""
        return any(not job.is_ahead_work for job in self._waiting.values())

    def put(self, job: Job) -> Job | None:
        """Put a job in line; the older one of its session, if any, loses its place to it and is returned."""
        superseded = self._waiting.get(job.key)
        self._waiting[job.key] = job
        return superseded

    def put_back(self, job: Job) -> bool:
        """Put a job that gave way at the end of the line; False where its session has a newer one."""
        return self._waiting.setdefault(job.key, job) is job

    def remove(self, job_id: int) -> Job | None:
        """Take a job out of line, wherever it stands; None where it does not stand there."""
        job = next((job for job in self._waiting.values() if job.id == job_id), None)
        return None if job is None else self._waiting.pop(job.key)

    def withdraw(self, key: SessionKey) -> Job | None:
        """Take a session's job out of line; None where it has none."""
        return self._waiting.pop(key, None)

    def take(self, ahead_too: bool = True) -> Job | None:
        """The next one to begin: the first that somebody waits for, else the first ahead work, if that may be begun."""
        jobs = self._waiting.values()
        job = next((job for job in jobs if not job.is_ahead_work), None)
        if job is None and ahead_too:
            job = next(iter(jobs), None)
        return None if job is None else self._waiting.pop(job.key)

    def clear(self) -> list[Job]:
        """Take everybody out of line."""
        jobs = list(self._waiting.values())
        self._waiting.clear()
        return jobs
