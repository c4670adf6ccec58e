"""The targets of a replay: the language server's own parts with an engine in process, or the real processes."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Protocol

from inference.engine.interface import AnyEngine
from lsp_server.editing.documents import Position
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import PromptCost
from midfill.headless.engine_core import EngineCore
from midfill.headless.lsp_session import LspSession
from midfill.headless.lsp_values import Answer, Suggestion, UsageReport
from midfill.replay.faults import OUTDATED, find_faults
from midfill.replay.trace import Step
from protocol.errors import MidfillError
from protocol.messages import Completion, CompletionRequest, Usage
from protocol.settings import Settings

URI = "file:///replay/session"
_AHEAD_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class StepResult:
    """The answer to one step. `usage` is None if the core got no request, since there was nothing to suggest."""

    usage: Usage | None
    suggestion: str
    ahead_tokens: int
    milliseconds: float
    faults: tuple[str, ...] = ()  # faults of the suggestion, and of an outdated one
    core_milliseconds: float = 0.0  # of these, the language server's wait for the core


class Target(Protocol):
    """One open document that follows the steps of a session."""

    async def play(self, step: Step, *, tell_move: bool) -> StepResult:
        """Send the move, if `tell_move`, and the edits, and wait for a suggestion; MidfillError if that fails."""
        ...

    async def last_exchange(self) -> tuple[CompletionRequest, Completion] | None:
        """The last request for a suggestion to the core and its completion; None if there was none."""
        ...


class EngineTarget:
    """The language server's documents and suggester on an engine in this process, without protocols."""

    def __init__(self, engine: AnyEngine, settings: Settings, language_id: str, text: str) -> None:
        self.core = EngineCore(engine)
        self._costs: list[PromptCost] = []
        self._session = EditingSession(self.core, settings, "replay", self._costs.append)
        self._document = self._session.open(URI, language_id, 1, text)

    async def play(self, step: Step, *, tell_move: bool) -> StepResult:
        self._costs.clear()
        if tell_move and step.moved_to is not None:
            self._session.look_ahead(self._document, step.moved_to)
            while self._document.latest.busy:
                await asyncio.sleep(0)
        overtaken = asyncio.create_task(self._session.suggest(self._document, Query(self._document.cursor)))
        await asyncio.sleep(0)
        outdated = not overtaken.done()
        for edit in step.edits:
            self._document.apply(edit)
        outdated = bool(await overtaken) and outdated
        ahead_tokens = sum(cost.usage.recomputed_tokens for cost in self._costs)
        self._costs.clear()
        started = asyncio.get_running_loop().time()
        insertions = await self._session.suggest(self._document, Query(step.cursor))
        milliseconds = (asyncio.get_running_loop().time() - started) * 1000
        usage = self._costs[-1].usage if self._costs else None
        faults = [OUTDATED] if outdated else []
        for insertion in insertions:
            end = Position(step.cursor.line, step.cursor.column + insertion.replaced)
            faults += find_faults(self._document.document, Suggestion(insertion.text, step.cursor, end))
        suggestion = insertions[0].text if insertions else ""
        return StepResult(usage, suggestion, ahead_tokens, milliseconds, tuple(faults))

    async def last_exchange(self) -> tuple[CompletionRequest, Completion] | None:
        return self._document.last_exchange


class SessionTarget:
    """A real language server over stdio, and its core; checks after every step that its text is the trace's."""

    def __init__(self, session: LspSession, language_id: str, text: str) -> None:
        self.answer = Answer((), 0.0, None)  # the last one, as the server sent it
        self.session = session
        session.open(URI, language_id, text)

    async def move(self, cursor: Position, timeout_s: float = _AHEAD_SECONDS) -> UsageReport | None:
        """Announce a cursor move; the cost of what the server then makes resident, None if that is nothing in time."""
        self.session.move_cursor(URI, cursor)
        return await self.session.wait_for_ahead(timeout_s)

    async def play(self, step: Step, *, tell_move: bool) -> StepResult:
        session = self.session
        session.ahead.clear()
        if tell_move and step.moved_to is not None:
            await self.move(step.moved_to)
        session.change(URI, step.edits)
        self.answer = answer = await session.suggest(URI, step.cursor)
        expected = hashlib.sha256(step.text.encode()).hexdigest()
        if await session.document_hash(URI) != expected:
            raise MidfillError("the language server's text differs from the trace's")
        ahead_tokens = sum(cost.usage.recomputed_tokens for cost in session.ahead)
        faults: list[str] = []
        for shown in answer.suggestions:
            faults += find_faults(session.documents[URI], shown)
        suggestion = answer.suggestions[0].text if answer.suggestions else ""
        usage, core_ms = (answer.cost.usage, answer.cost.milliseconds) if answer.cost else (None, 0.0)
        return StepResult(usage, suggestion, ahead_tokens, answer.milliseconds, tuple(faults), core_ms)

    async def last_exchange(self) -> tuple[CompletionRequest, Completion] | None:
        return await self.session.last_exchange(URI)
