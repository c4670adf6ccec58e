"""The interface of an engine, as the scheduler uses it: begin requests, step, end the cancelled ones, close.

`inference.engine.engine` computes in this process; `inference.remote` passes requests to another process or machine.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from inference.engine.active_request import IsCancelled, OnPrefill, OnText
from inference.engine.engine import DeviceHooks, EngineInfo
from inference.engine.slots import Resident
from inference.engine.speed_test import Speed
from inference.text.stretches import Stretch
from kv_store.interface import StoreStats
from protocol.messages import Completion, CompletionRequest, Usage

ReplicaState = Literal["up", "suspected", "down", "refused"]
"""Of a server behind the engine: suspected if a request to it has just failed, refused if it has another model."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A server behind the engine: its state, and its requests since the engine connected to it."""

    address: str
    state: ReplicaState
    reason: str  # why it is not up
    sessions: int  # that have a place there
    at_work: int  # requests
    requests: int  # for suggestions, answered
    hot_requests: int  # of these, hot ones
    moved_requests: int  # that failed here and were sent to another replica


class EngineRequest(Protocol):
    """A request at work in an engine; compared and hashed by identity."""

    @property
    def has_ended(self) -> bool: ...

    def completion(self) -> Completion:
        """The completion of an ended request; raises the error that ended it, if any."""
        ...


class AnyEngine(Protocol):
    """For one thread only, except for `wake`."""

    @property
    def info(self) -> EngineInfo: ...

    @property
    def device(self) -> DeviceHooks: ...

    @property
    def capacity(self) -> int:
        """Number of requests that can be at work at once."""
        ...

    @property
    def notice(self) -> str:
        """What users should know about the engine now, in one line; empty if nothing."""
        ...

    @property
    def replicas(self) -> Sequence[ReplicaStatus]:
        """The servers behind the engine; none if it computes in this process. From any thread."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether the engine can serve no further request and must be loaded anew."""
        ...

    def begin(
        self,
        request: CompletionRequest,
        cancelled: IsCancelled = ...,
        client: str = "",
        on_prefill: OnPrefill = ...,
        on_text: OnText | None = None,
    ) -> EngineRequest:
        """Start a request; at most `capacity` can be at work. `cancelled` is polled until the request has ended.

        `on_prefill` follows a long prompt, and `on_text` the text while it grows; both are called from any thread.
        """
        ...

    def complete(self, request: CompletionRequest, cancelled: IsCancelled = ...) -> Completion:
        """Run one request to its end; raises the error that ended it, if any."""
        ...

    def drop_cancelled(self) -> Sequence[EngineRequest]:
        """End the cancelled requests, which makes room for others, and return them."""
        ...

    def step(self) -> Sequence[EngineRequest]:
        """Run or await the next progress of the requests at work; returns those that ended or were cancelled."""
        ...

    def wake(self) -> None:
        """Make a `step` that waits return soon: there is a new request or a cancelled one. From any thread."""
        ...

    def forget(self, session: str) -> None:
        """Drop the KV of the session's document, for every client."""
        ...

    def release(self, session: str) -> None:
        """Treat the session's KV as no longer needed, because its document is closed."""
        ...

    def save(self, seconds: float | None = None) -> bool:
        """Save resident KV for about `seconds` (None: all of it); True if nothing is left to save."""
        ...

    def measure_speed(self) -> Generator[None, None, Speed] | None:
        """The speed test, which runs one forward per step; None if this engine has none."""
        ...

    def free(self, *, disk: bool) -> None:
        """Drop all resident KV from memory, and with `disk` also what is saved; no request may be at work."""
        ...

    def stats(self) -> StoreStats:
        """Statistics of the resident KV."""
        ...

    def residents(self) -> tuple[Resident, ...]:
        """What is resident of each session, the latest first; only the latest of very many."""
        ...

    def stretches(self, request: CompletionRequest, usage: Usage) -> tuple[Stretch, ...]:
        """The prompt of a completed request: what was resident of it, and what was computed.

        `usage` does not tell recomputed typed bytes (token healing) from others, so that the border may be off by the
        tokens of the partial word at the cursor.
        """
        ...

    def abandon(self) -> None:
        """Release system resources without saving."""
        ...

    def close(self, save_s: float | None = None) -> None:
        """Save for at most `save_s` seconds (None: everything), and release system resources."""
        ...
