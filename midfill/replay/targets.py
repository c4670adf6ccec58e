"""What a replay plays against: the planner with an engine in process, or a language server over stdio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from midfill.replay.trace import Step
from protocol.messages import Usage


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for one step."""

    usage: Usage
    suggestion: str
    ahead_tokens: int
    store_bytes: tuple[int, ...] = ()


class Target(Protocol):
    """One open document that follows the steps of a session."""

    tiers: tuple[str, ...]

    def play(self, step: Step) -> Answer:
        """Tell of the step's move and edits, ask for a suggestion and wait for it."""
        ...

    def close(self) -> None: ...
