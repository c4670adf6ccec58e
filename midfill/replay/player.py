"""Plays a session against a target, once per strategy, and records every request."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, nullcontext
from dataclasses import replace

from inference.checkpoints.checkpoint import find_checkpoint
from inference.loading.engine import load_dry_engine
from inference.loading.options import engine_options
from inference.remote.connecting import open_engine
from inference.text.tokenization import TextTokenizer
from midfill.headless.lsp_session import open_session
from midfill.headless.lsp_values import ServerStatus
from midfill.headless.private_core import private_core_environment
from midfill.replay.options import ReplayOptions
from midfill.replay.results import Record, ReplayResult, StrategyResult, savings_of
from midfill.replay.targets import EngineTarget, SessionTarget, StepResult, Target
from midfill.replay.trace import Step, Trace, play, text_at
from midfill.replay.verifier import Verifier
from protocol.errors import MidfillError
from protocol.heat import heat
from protocol.messages import Usage
from protocol.settings import Settings, chosen_settings

OnStep = Callable[[str, int], None]

_START_SECONDS = 300.0
_SERVER_SETTINGS = (
    *("model", "device", "dtype", "strategy", "healing", "exact"),
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
async def open_server(
    settings: Settings,
    language: str,
    text: str,
    *,
    shared: bool = False,
    hear: Callable[[ServerStatus], None] | None = None,
) -> AsyncIterator[SessionTarget]:
    """A real language server with this text open and the model ready, and its core: a private one unless `shared`.

    `hear` is called with each status until then.
    """
    command = [sys.executable, "-P", "-m", "midfill", "lsp"]
    given = chosen_settings(settings, _SERVER_SETTINGS)
    core: AbstractContextManager[dict[str, str]] = nullcontext({}) if shared else private_core_environment()
    with core as environment:
        async with open_session(command, settings=given, environment=environment) as session:
            target = SessionTarget(session, language, text)
            await session.wait_until_ready(_START_SECONDS, hear)
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
    faults: Counter[str] = Counter()
    remarks: list[str] = []
    # Other programs, with PSM or SPM prompts, get no announced moves, so by default neither do these strategies.
    tell_move = options.moves_for_all or (options.moves and settings.strategy == "efim")
    played: list[Step] = []
    for number, step in enumerate(steps):
        played.append(replace(step, text=""))  # the texts of a whole session would take gigabytes
        try:
            answer = await target.play(step, tell_move=tell_move)
            if verifier is not None and verifier.wants(number):
                verifier.check(await target.last_exchange())
        except MidfillError as error:
            errors.append(f"step {options.start + number}: {error}")
            suggestions.append("")
            continue
        finally:
            progress(settings.strategy, number + 1)
        suggestions.append(answer.suggestion)
        remarks += [f"step {options.start + number}: {answer.suggestion!r} {what}" for what in answer.faults]
        faults.update(answer.faults)
        records.append(_record(options.start + number, step, answer, tokenizer))
    savings = None if options.mode == "dry" else savings_of(played, suggestions)
    return StrategyResult(
        settings.strategy, tuple(records), tuple(errors), savings, dict(faults), tuple(remarks), tell_move
    )


def _record(number: int, step: Step, answer: StepResult, tokenizer: TextTokenizer) -> Record:
    """What a step cost."""
    usage = answer.usage or _NOTHING
    inserted = sum(map(tokenizer.count_tokens, step.inserted))
    return Record(
        step=number,
        single_cursor=step.single_cursor,
        inserted_tokens=inserted,
        prompt_tokens=usage.prompt_tokens,
        recomputed_tokens=usage.recomputed_tokens,
        ahead_tokens=answer.ahead_tokens,
        milliseconds=answer.milliseconds,
        heat=heat(usage, inserted),
        suggestion=answer.suggestion,
    )
