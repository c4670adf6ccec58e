"""The sides of a comparison of keystrokes: midfill's language server and llama-server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, Protocol

from llama_server import LlamaServer
from playing import Session

from lsp_server.documents.documents import Document, Position
from lsp_server.prompts.anchors import WindowBudget
from lsp_server.prompts.planner import PromptPlanner
from midfill.replay.player import SessionTarget
from midfill.replay.results import percentiles
from midfill.replay.trace import Step
from protocol.messages import Prompt

STOP = "\n"
DEFAULT_WINDOWS = WindowBudget()


@dataclass(frozen=True, slots=True)
class Timed:
    """One keystroke of one side."""

    milliseconds: float
    recomputed_tokens: int
    generated_tokens: int
    forwards: int | None = None  # None if the side does not report it; fewer than tokens when drafts are accepted


def figures(timed: Sequence[Timed]) -> dict[str, Any]:
    """Percentiles of the times and of the recomputed tokens, and how many tokens were generated."""
    return {
        "time_to_suggestion_ms": percentiles([keystroke.milliseconds for keystroke in timed]),
        "recomputed_tokens": percentiles([keystroke.recomputed_tokens for keystroke in timed]),
        "generated_tokens_mean": mean(keystroke.generated_tokens for keystroke in timed),
    }


class Side(Protocol):
    """A program in the comparison, which follows the session by itself."""

    name: str

    async def play(self, step: Step) -> Timed: ...


class MidfillSide:
    """The language server and its core."""

    def __init__(self, name: str, target: SessionTarget) -> None:
        self.name = name
        self._target = target

    async def play(self, step: Step) -> Timed:
        answer = await self._target.play(step, announce_move=True)
        if answer.usage is None:
            return Timed(answer.milliseconds, 0, 0, 0)
        usage = answer.usage
        return Timed(answer.milliseconds, usage.recomputed_tokens, usage.generated_tokens, usage.forwards)


class LlamaSide:
    """llama-server, with a mirror of the document and the windows that midfill's own PSM strategy cuts."""

    def __init__(
        self, name: str, session: Session, server: LlamaServer, windows: WindowBudget = DEFAULT_WINDOWS, *, announce_moves: bool
    ) -> None:
        self.name, self.server, self._announce_moves = name, server, announce_moves
        self._document = Document.from_text("file:///bench", session.language, 1, session.text)
        self._max_new_tokens = session.max_new_tokens
        self._planner = PromptPlanner(self._document, windows, "psm")

    async def play(self, step: Step) -> Timed:
        if self._announce_moves and step.moved_to is not None:
            self.server.infill(self.prompt(step.moved_to), max_tokens=0)
        self.follow(step)
        prompt = self.prompt(step.cursor)
        answer = self.server.infill(prompt, self._max_new_tokens, [STOP])
        self._planner.observe(prompt, answer.prompt_tokens)
        return Timed(answer.milliseconds, answer.recomputed_tokens, answer.generated_tokens)

    def follow(self, step: Step) -> None:
        """The step's edits, without a request."""
        for edit in step.edits:
            self._planner.edited(self._document.apply(edit))

    def prompt(self, cursor: Position) -> Prompt:
        """The windows around the cursor."""
        return self._planner.plan(cursor).prompt
