"""The player of a session: replays it against a target once per strategy, records each request, and verifies a sample
cold.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from msgspec.structs import replace as replace_fields

from inference.checkpoints.checkpoint import find_checkpoint
from inference.engine.interface import AnyEngine
from inference.loading.engine import load_dry_engine
from inference.loading.options import engine_options
from inference.remote.connecting import open_engine
from inference.text.prompts import short_prompt
from inference.text.tokenization import TextTokenizer
from lsp_server.documents.documents import Position
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import PromptCost
from midfill.headless.engine_core import EngineCore
from midfill.headless.environment import private_core_environment
from midfill.headless.lsp_session import LANGUAGE_SERVER, Answer, LspSession, UsageReport, open_session
from midfill.replay.command import ReplayOptions
from midfill.replay.results import Record, ReplayResult, StrategyResult, savings_of
from midfill.replay.trace import Step, Trace, play, text_at
from protocol.errors import MidfillError
from protocol.messages import Completion, CompletionRequest, Usage, cache_outcome
from protocol.settings import Settings, chosen_settings

URI = "file:///replay/session"
_AHEAD_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class StepResult:
    """The answer to one step. `usage` is None if the core got no request, since there was nothing to suggest."""

    usage: Usage | None
    suggestion: str
    prefetched_tokens: int
    milliseconds: float
    core_milliseconds: float = 0.0  # of these, the language server's wait for the core


class Target(Protocol):
    """One open document that follows the steps of a session."""

    async def play(self, step: Step, *, announce_move: bool) -> StepResult:
        """Send the move, if `announce_move`, and the edits, and wait for a suggestion; MidfillError if that fails."""
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

    async def play(self, step: Step, *, announce_move: bool) -> StepResult:
        self._costs.clear()
        if announce_move and step.moved_to is not None:
            self._session.prefetch(self._document, step.moved_to)
            while self._document.latest.busy:
                await asyncio.sleep(0)
        for edit in step.edits:
            self._document.apply(edit)
        prefetched_tokens = sum(cost.usage.recomputed_tokens for cost in self._costs)
        self._costs.clear()
        started = asyncio.get_running_loop().time()
        insertions = await self._session.suggest(self._document, Query(step.cursor))
        milliseconds = (asyncio.get_running_loop().time() - started) * 1000
        usage = self._costs[-1].usage if self._costs else None
        suggestion = insertions[0].text if insertions else ""
        return StepResult(usage, suggestion, prefetched_tokens, milliseconds)

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
        return await self.session.wait_for_prefetch(timeout_s)

    async def play(self, step: Step, *, announce_move: bool) -> StepResult:
        session = self.session
        session.prefetches.clear()
        if announce_move and step.moved_to is not None:
            await self.move(step.moved_to)
        session.change(URI, step.edits)
        self.answer = answer = await session.suggest(URI, step.cursor)
        expected = hashlib.sha256(step.text.encode()).hexdigest()
        if await session.document_hash(URI) != expected:
            raise MidfillError("the language server's text differs from the trace's")
        prefetched_tokens = sum(cost.usage.recomputed_tokens for cost in session.prefetches)
        suggestion = answer.suggestions[0].text if answer.suggestions else ""
        usage, core_ms = (answer.cost.usage, answer.cost.milliseconds) if answer.cost else (None, 0.0)
        return StepResult(usage, suggestion, prefetched_tokens, answer.milliseconds, core_ms)

    async def last_exchange(self) -> tuple[CompletionRequest, Completion] | None:
        return await self.session.last_exchange(URI)


class SuggestionDiffers(MidfillError):
    """A completion from resident KV differs from a cold engine's."""

    code = "suggestion_differs"


class Verifier:
    """Selects `count` of `total` steps, evenly spread, and compares their completions with a cold engine's.

    A selected step without a request to the core is replaced by the next step with one.
    """

    def __init__(self, engine: AnyEngine, count: int, total: int) -> None:
        self._engine = engine
        self._due = 0
        self._last: CompletionRequest | None = None
        self._wanted = {index * total // min(count, total) for index in range(min(count, total))}

    def wants(self, number: int) -> bool:
        """Whether to check the core's last completion after this step; call it once for every step."""
        self._due += number in self._wanted
        return self._due > 0

    def check(self, exchange: tuple[CompletionRequest, Completion] | None) -> None:
        """Raise SuggestionDiffers, with both texts, if the completion differs from a cold engine's."""
        if exchange is None or exchange[0] == self._last:
            return
        self._due -= 1
        request, warm = exchange
        self._last = request
        prompt = short_prompt(request.prompt, self._engine.tokenizer.count_tokens) if warm.is_short else request.prompt
        cold = self._engine.complete(replace_fields(request, prompt=prompt, reuse=False))
        if (warm.text, warm.finish_reason) != (cold.text, cold.finish_reason):
            raise SuggestionDiffers(f"with reuse {warm.text!r} ({warm.finish_reason}), cold {cold.text!r}")


OnStep = Callable[[str, int], None]

_START_SECONDS = 300.0
_SERVER_SETTINGS = (
    *("model", "device", "dtype", "strategy", "healing"),
    *("max_tokens", "prefix_tokens", "suffix_tokens", "store_mb"),
)
_NOTHING = Usage(0, 0, 0, 0, 0.0, 0.0, 0.0)


async def replay(trace: Trace, settings: Settings, options: ReplayOptions, progress: OnStep) -> ReplayResult:
    """Play the trace once per strategy; calls `progress` with the strategy and the number of steps done."""
    count = sum(1 for _ in play(trace, options.start, options.limit))  # raises for a bad trace before the work begins
    tokenizer = find_checkpoint(settings.model).tokenizer()
    results = []
    with ExitStack() as opened:
        verifier = None
        if options.verify:
            cold = open_engine(engine_options(settings))
            opened.callback(cold.close)
            verifier = Verifier(cold, options.verify, count)
        for strategy in options.layouts:
            chosen = replace(settings, strategy=strategy, prepare_ahead="always")
            async with open_target(trace, chosen, options) as target:
                steps = play(trace, options.start, options.limit)
                results.append(await _play(target, steps, chosen, options, tokenizer, verifier, progress))
    return ReplayResult(trace.name, settings.model, options.mode, tuple(results))


@asynccontextmanager
async def open_target(trace: Trace, settings: Settings, options: ReplayOptions) -> AsyncIterator[Target]:
    """The target of a mode, with the session's document open and the model ready."""
    text = text_at(trace, options.start)
    if options.mode == "stdio":
        async with open_server(settings, options.language, text) as target:
            yield target
    else:
        load = load_dry_engine if options.mode == "dry" else open_engine
        engine = load(engine_options(settings))
        try:
            yield EngineTarget(engine, settings, options.language, text)
        finally:
            engine.close()


@asynccontextmanager
async def open_server(settings: Settings, language: str, text: str) -> AsyncIterator[SessionTarget]:
    """A real language server with this text open and the model ready, and a core of its own."""
    given = chosen_settings(settings, _SERVER_SETTINGS)
    with private_core_environment() as environment:
        async with open_session(LANGUAGE_SERVER, settings=given, environment=environment) as session:
            target = SessionTarget(session, language, text)
            await session.wait_until_ready(_START_SECONDS)
            yield target


async def _play(
    target: Target,
    steps: Iterable[Step],
    settings: Settings,
    options: ReplayOptions,
    tokenizer: TextTokenizer,
    verifier: Verifier | None,
    progress: OnStep,
) -> StrategyResult:
    records: list[Record] = []
    errors: list[str] = []
    suggestions: list[str] = []
    # Other programs, with PSM or SPM prompts, get no announced moves, so by default neither do these strategies.
    announce_move = options.moves_for_all or (options.moves and settings.strategy == "efim")
    played: list[Step] = []
    for number, step in enumerate(steps):
        played.append(replace(step, text=""))  # the texts of a whole session would take gigabytes
        try:
            answer = await target.play(step, announce_move=announce_move)
            if verifier is not None and verifier.wants(number):
                verifier.check(await target.last_exchange())
        except MidfillError as error:
            errors.append(f"step {options.start + number}: {error}")
            suggestions.append("")
            continue
        finally:
            progress(settings.strategy, number + 1)
        suggestions.append(answer.suggestion)
        records.append(_record(options.start + number, step, answer, tokenizer))
    savings = None if options.mode == "dry" else savings_of(played, suggestions)
    return StrategyResult(settings.strategy, tuple(records), tuple(errors), savings, announce_move)


def _record(number: int, step: Step, answer: StepResult, tokenizer: TextTokenizer) -> Record:
    """The record of a step's cost."""
    usage = answer.usage or _NOTHING
    inserted = sum(map(tokenizer.count_tokens, step.inserted))
    return Record(
        step=number,
        single_cursor=step.single_cursor,
        inserted_tokens=inserted,
        prompt_tokens=usage.prompt_tokens,
        recomputed_tokens=usage.recomputed_tokens,
        prefetched_tokens=answer.prefetched_tokens,
        milliseconds=answer.milliseconds,
        cache_outcome=cache_outcome(usage, inserted),
        suggestion=answer.suggestion,
    )
