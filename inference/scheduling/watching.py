"""What a watcher of the model thread sees, at its request and after each answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from inference.engine.slots import Resident
from inference.scheduling.job_queue import Outcome
from inference.text.stretches import Stretch
from kv_store.interface import StoreStats
from protocol.messages import CompletionRequest


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that the model thread has answered; `stretches` is empty unless it was completed."""

    client: str
    request: CompletionRequest
    answer: Outcome
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True, slots=True)
class Sight:
    """The requests in the core, and what is resident; None and nothing while no model is loaded."""

    waiting: int
    at_work: int
    stats: StoreStats | None
    residents: tuple[Resident, ...]
    answered: Answered | None = None


class Watch(Protocol):
    """Receives sights on the model thread, and must not block it; none is built while they are not `wanted`."""

    @property
    def wanted(self) -> bool: ...

    def see(self, sight: Sight) -> None: ...
