"""What a watcher of the model thread sees, at its request and after each answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from inference.engine.request import Request
from inference.engine.slots import Resident
from inference.text.stretches import Stretch
from kv_store.interface import StoreStats


@dataclass(frozen=True, slots=True)
class Sight:
    """The requests in the core, and what is resident; None and nothing while no model is loaded."""

    waiting: int
    at_work: int
    stats: StoreStats | None
    residents: tuple[Resident, ...]
    answered: Request | None = None  # that has its outcome
    stretches: tuple[Stretch, ...] = ()  # of its prompt, if it was completed


class Watch(Protocol):
    """Receives sights on the model thread, and must not block it; none is built while they are not `wanted`."""

    @property
    def wanted(self) -> bool: ...

    def see(self, sight: Sight) -> None: ...
