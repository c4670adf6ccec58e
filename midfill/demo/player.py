"""The player of the demo's recording: each keystroke with its cost, the costs of other layouts, and the figures of a
run.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from inference.loading.engine import load_dry_engine
from inference.loading.options import engine_options
from lsp_server.documents.documents import Document, Edit, Position, end_of, split_lines
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.requests import PromptCost
from midfill.headless.engine_core import EngineCore
from midfill.headless.lsp_process import LanguageServerFailed
from midfill.headless.lsp_session import ShownSuggestion, UsageReport
from midfill.replay.player import SessionTarget
from midfill.replay.results import percentile
from midfill.replay.trace import Step
from protocol.messages import CacheOutcome
from protocol.settings import Settings, Strategy

Kind = Literal["key", "jump", "accept", "undo"]

_ANSWER_TIMEOUT_S = 60.0
_AHEAD_TIMEOUT_S = 20.0
# No suggestion of fewer characters is accepted, and none before some keys' time to read it; the first keys of all are
# typed by hand, so that their costs are seen.
_WORTH_ACCEPTING = 5
_KEYS_TO_READ = 2
_KEYS_BY_HAND = 30


@dataclass(frozen=True, slots=True)
class Keystroke:
    """One key press as the language server heard it, with its suggestion and cost.

    `cost` is None if the server had nothing to compute. A jump requests no suggestion: the server makes the
    place resident ahead of the next key, and `cost` is that of this prefetch.
    """

    label: str
    kind: Kind
    step: Step  # its edits, with the cursor and the text after them
    suggestion: ShownSuggestion | None
    milliseconds: float  # time to suggestion; 0 for a jump
    cost: UsageReport | None

    @property
    def cursor(self) -> Position:
        return self.step.cursor

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(split_lines(self.step.text))


async def play(target: SessionTarget, text: str, steps: Sequence[Step], seconds_per_key: float) -> AsyncIterator[Keystroke]:
    """Every keystroke of a session that begins with `text`, once it is answered.

    A suggestion is accepted if the session types it next. Where the session inserts a text at once and takes it back,
    the suggestion that is shown, whatever its text, is accepted and undone in its place.

    The next key comes `seconds_per_key` after the last one, or with its answer if that takes longer, so that each
    keystroke has a cost to show. (Editors do not wait: they cancel.)
    """
    typed, agreed, index = 0, 0, 0
    cursor = Position(0, 0)
    shown: ShownSuggestion | None = None
    while index < len(steps):
        step = steps[index]
        todo: list[tuple[str, Kind, Step]] = []
        if step.moved_to is not None and step.moved_to.line != cursor.line:
            todo.append((f"jump to {step.moved_to.line + 1}", "jump", Step(None, (), step.moved_to, text)))
            shown = None
        reached = _steps_said(steps, index, text, shown)
        agreed = agreed + 1 if reached else 0
        if _takes_back(steps, index):
            index += 2
            if shown is not None:
                accepted = _accepting(text, shown)
                back = Edit(shown.start, accepted.cursor, _between(text, shown))
                todo += [("accept", "accept", accepted), ("undo", "undo", Step(None, (back,), cursor, text))]
        elif shown is not None and agreed > _KEYS_TO_READ and typed >= _KEYS_BY_HAND:
            todo.append(("accept", "accept", _accepting(text, shown)))
            index, agreed = index + reached, 0
        else:
            todo.append((_label(step), "key", step))
            index, typed = index + 1, typed + 1
        for label, kind, pressed in todo:
            due = time.monotonic() + seconds_per_key
            keystroke = await _press(target, label, kind, pressed)
            text, cursor, shown = pressed.text, pressed.cursor, keystroke.suggestion
            yield keystroke
            await asyncio.sleep(max(0.0, due - time.monotonic()))


async def _press(target: SessionTarget, label: str, kind: Kind, step: Step) -> Keystroke:
    if kind == "jump":
        return Keystroke(label, kind, step, None, 0.0, await target.move(step.cursor, _AHEAD_TIMEOUT_S))
    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            await target.play(step, announce_move=False)
    except TimeoutError as error:
        raise LanguageServerFailed(f"no answer to a keystroke within {_ANSWER_TIMEOUT_S:.0f} s") from error
    answer = target.answer
    suggestion = answer.suggestions[0] if answer.suggestions else None
    return Keystroke(label, kind, step, suggestion, answer.milliseconds, answer.cost)


def _steps_said(steps: Sequence[Step], index: int, text: str, shown: ShownSuggestion | None) -> int:
    """How many steps from `index` on write exactly the suggestion; 0 if they write or delete something else."""
    if shown is None or len(shown.text) < _WORTH_ACCEPTING:
        return 0
    wanted = _accepting(text, shown).text
    for count, step in enumerate(steps[index : index + 2 * len(shown.text)], start=1):
        if not step.edits[-1].text:
            return 0
        if step.text == wanted:
            return count
    return 0


def _accepting(text: str, shown: ShownSuggestion) -> Step:
    """The step that accepts a suggestion for this text."""
    edit = Edit(shown.start, shown.end, shown.text)
    document = Document.from_text("", "", 0, text)
    document.apply(edit)
    return Step(None, (edit,), end_of(shown.start, shown.text), document.text)


def _between(text: str, shown: ShownSuggestion) -> str:
    return Document.from_text("", "", 0, text).slice(shown.start, shown.end)


def _takes_back(steps: Sequence[Step], index: int) -> bool:
    """Whether the step inserts several characters at once, and the next one deletes them."""
    if index + 1 >= len(steps):
        return False
    (edit, *more), (back, *_) = steps[index].edits, steps[index + 1].edits
    whole = (edit.start, end_of(edit.start, edit.text), "")
    return len(edit.text) > 1 and not more and (back.start, back.end, back.text) == whole


def _label(step: Step) -> str:
    """The key that makes this step."""
    text = step.edits[-1].text  # behind it, in the edits before, stands what the editor closed
    if not text or text[0] == "\n":
        return "Enter" if text else "backspace"
    if len(step.edits) > 1:
        return f"{text} auto-closed"
    return text if text.strip() else "space" if len(text) == 1 else "Tab"


async def mean_recomputed(
    strategy: Strategy, settings: Settings, language: str, text: str, keystrokes: Sequence[Keystroke]
) -> float:
    """The mean of recomputed tokens per request if prompts had the layout `strategy`.

    Windows, tokenizer and the longest common prefix with resident tokens are real; only the model is missing. The
    requests are those that the core computed, and jumps are prepared ahead of the next key, as in the run.
    """
    engine = load_dry_engine(engine_options(settings))
    costs: list[PromptCost] = []
    always = replace(settings, strategy=strategy, prepare_ahead="always")
    session = EditingSession(EngineCore(engine), always, "demo", costs.append)
    opened = session.open("file:///demo", language, 1, text)
    for key in keystrokes:
        for edit in key.step.edits:
            opened.apply(edit)
        if key.kind == "jump":
            session.prefetch(opened, key.cursor)
            while opened.latest.busy:
                await asyncio.sleep(0)
        elif key.cost is not None and key.cost.source == "core":
            await session.suggest(opened, Query(key.cursor))
    session.close(opened.document.uri)
    engine.close()
    recomputed = [cost.usage.recomputed_tokens for cost in costs if not cost.is_prefetch]
    return sum(recomputed) / max(1, len(recomputed))


# Calm where little was computed, warmer the more it was.
OUTCOME_STYLES: dict[CacheOutcome, str] = {"hit": "bold green", "partial": "bold yellow", "miss": "bold red"}


@dataclass(frozen=True, slots=True)
class DemoSummary:
    """The figures of one run. A request is a keystroke that was answered; prefetches are counted separately."""

    requests: int
    hits: int
    accepted: int
    undone: int
    computed: int  # requests that the core computed; the last suggestion answered the others
    prompt_tokens: int  # of all computed requests together
    recomputed_tokens: int
    prefetched_tokens: int
    median_ms: float
    p95_ms: float

    @property
    def hit_share(self) -> float:
        return self.hits / self.requests if self.requests else 0.0

    @property
    def mean_recomputed(self) -> float:
        return self.recomputed_tokens / self.computed if self.computed else 0.0


def summarize(keystrokes: Sequence[Keystroke]) -> DemoSummary:
    """The summary of a run, or of its beginning."""
    answered = [key for key in keystrokes if key.cost is not None and not key.cost.is_prefetch]
    costs = [key.cost for key in answered if key.cost is not None]
    computed = [cost.usage for cost in costs if cost.source == "core"]
    times = [key.milliseconds for key in answered]
    return DemoSummary(
        requests=len(answered),
        hits=sum(cost.cache_outcome == "hit" for cost in costs),
        accepted=sum(key.kind == "accept" for key in keystrokes),
        undone=sum(key.kind == "undo" for key in keystrokes),
        computed=len(computed),
        prompt_tokens=sum(usage.prompt_tokens for usage in computed),
        recomputed_tokens=sum(usage.recomputed_tokens for usage in computed),
        prefetched_tokens=sum(key.cost.usage.recomputed_tokens for key in keystrokes if key.cost and key.cost.is_prefetch),
        median_ms=statistics.median(times) if times else 0.0,
        p95_ms=percentile(times, 0.95),
    )


def report(summary: DemoSummary, other_layouts: Mapping[Strategy, float], model: str, device: str) -> RenderableType:
    """The cost of the run, next to that of the same keys under other prompt layouts."""
    table = Table(title=f"model {model}, device {device}", title_justify="left", title_style="bold", box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="bright_black")
    typed = summary.requests - summary.computed
    reused = 1 - summary.recomputed_tokens / max(1, summary.prompt_tokens)
    hits = Text(f"{summary.hit_share:.1%}", style=OUTCOME_STYLES["hit"])
    table.add_row("keystrokes answered", str(summary.requests), f"{typed} typed as suggested")
    table.add_row("suggestions accepted", str(summary.accepted), f"{summary.undone} undone")
    table.add_row("cache hits", hits, "recomputed only the typed tokens")
    table.add_row("time to suggestion, median", f"{summary.median_ms:.0f} ms", f"p95 {summary.p95_ms:.0f} ms")
    table.add_row("prompt tokens that were resident", f"{reused:.2%}", f"of {summary.prompt_tokens:,}")
    table.add_row("prefetched at cursor jumps", f"{summary.prefetched_tokens:,} tokens", "before the next key")
    table.add_row(
        "recomputed per request to the core", f"{summary.mean_recomputed:.1f} tokens", "with EFIM (measured)", style="bold"
    )
    for strategy, mean in other_layouts.items():
        table.add_row("", f"{mean:.1f} tokens", f"with {strategy.upper()} (counted)")
    return table
