"""Plays the recorded session of the README's picture through a language server and a core, and shows each keystroke."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from lsp_server.documents.documents import Document, Edit, Position, end_of, split_lines
from midfill.headless.lsp_session import ShownSuggestion, UsageReport
from midfill.replay.player import SessionTarget, open_server
from midfill.replay.trace import Step, read_trace
from midfill.replay.trace import play as steps_of
from protocol.messages import CacheOutcome
from protocol.settings import Settings

SESSION = Path(__file__).with_name("basket.ts.json")
NAME, LANGUAGE = "basket.ts", "typescript"

Kind = Literal["key", "jump", "accept", "undo"]

_SECONDS_PER_KEY = 0.08
_AHEAD_TIMEOUT_S = 20.0
# No suggestion of fewer characters is accepted, and none before some keys' time to read it; the first keys of all are
# typed by hand, so that their costs are seen.
_WORTH_ACCEPTING = 5
_KEYS_TO_READ = 2
_KEYS_BY_HAND = 30


@dataclass(frozen=True, slots=True)
class Keystroke:
    """One key press with its suggestion and cost; `cost` is None if the server had nothing to compute.

    A jump requests no suggestion: `cost` is that of the prefetch at its place.
    """

    label: str
    kind: Kind
    step: Step  # its edits, with the cursor and the text after them
    suggestion: ShownSuggestion | None
    cost: UsageReport | None

    @property
    def cursor(self) -> Position:
        return self.step.cursor

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(split_lines(self.step.text))


async def record() -> list[Keystroke]:
    """All keystrokes of the session, by a language server and a core of their own."""
    recorded = read_trace(SESSION)
    async with open_server(Settings(), LANGUAGE, recorded.start) as target:
        return [key async for key in play(target, recorded.start, [*steps_of(recorded)], _SECONDS_PER_KEY)]


async def play(target: SessionTarget, text: str, steps: Sequence[Step], seconds_per_key: float) -> AsyncIterator[Keystroke]:
    """Every keystroke of a session that begins with `text`, once it is answered.

    A suggestion is accepted if the session types it next. Where the session inserts a text at once and takes it back,
    the suggestion that is shown, whatever its text, is accepted and undone in its place.
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
                replaced = Document.from_text("", "", 0, text).slice(shown.start, shown.end)
                back = Edit(shown.start, accepted.cursor, replaced)
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
        return Keystroke(label, kind, step, None, await target.move(step.cursor, _AHEAD_TIMEOUT_S))
    await target.play(step, announce_move=False)
    suggestions = target.answer.suggestions
    return Keystroke(label, kind, step, suggestions[0] if suggestions else None, target.answer.cost)


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


WIDTH = 80
_BAR_CELLS = 20
_GHOST = "italic bright_black"
# Calm where little was computed, warmer the more it was.
_OUTCOME_STYLES: dict[CacheOutcome, str] = {"hit": "bold green", "partial": "bold yellow", "miss": "bold red"}


def cost_table(key: Keystroke) -> Table:
    """A row with the cost of a keystroke, below its heading."""
    table = Table(box=None, expand=True, padding=(0, 1), header_style="bright_black")
    table.add_column("key", width=16, no_wrap=True)
    table.add_column("", width=8)
    table.add_column("recomputed", width=_BAR_CELLS)
    table.add_column("of prompt tokens", justify="right", width=17)
    table.add_row(key.label, *_cost_cells(key))
    return table


def _cost_cells(key: Keystroke) -> tuple[RenderableType, ...]:
    cost = key.cost
    if cost is None:
        return ("", "resident already" if key.kind == "jump" else "nothing to suggest", "")
    style = "magenta" if cost.is_prefetch else _OUTCOME_STYLES[cost.cache_outcome]
    outcome = Text("prefetch" if cost.is_prefetch else cost.cache_outcome, style=style)
    if cost.source == "typed":
        return (outcome, "typed as suggested", "0")
    usage = cost.usage
    return (outcome, _bar(cost, style), f"{usage.recomputed_tokens:,} of {usage.prompt_tokens:,}")


def _bar(cost: UsageReport, style: str) -> Text:
    """A bar of the recomputed share of the prompt; visible if any token was recomputed."""
    usage = cost.usage
    eighths = round(8 * _BAR_CELLS * usage.recomputed_tokens / max(1, usage.prompt_tokens))
    full, part = divmod(max(eighths, 1 if usage.recomputed_tokens else 0), 8)
    bar = "█" * full + " ▏▎▍▌▋▊▉"[part].strip()
    return Text.assemble((bar, style), ("·" * (_BAR_CELLS - len(bar)), "bright_black"))


def code_view(keystroke: Keystroke, height: int, language: str) -> Text:
    """`height` lines with their numbers, the cursor a third from the top."""
    highlighter = Syntax("", language, theme="ansi_dark", background_color="default")
    code = highlighter.highlight("".join(keystroke.lines)).split("\n", allow_blank=True)
    cursor = keystroke.cursor
    first = max(0, min(cursor.line - height // 3, len(keystroke.lines) - height))
    rows: list[Text] = []
    for number in range(first, min(first + height, len(code))):
        here = number == cursor.line
        pieces = _cursor_line(code[number], cursor, keystroke.suggestion) if here else [code[number]]
        rows.append(Text.assemble((f"{number + 1:4} ", "bold" if here else "bright_black"), pieces[0]))
        rows += [Text.assemble("     ", piece) for piece in pieces[1:]]
    return Text("\n", no_wrap=True, overflow="ellipsis").join(rows[:height])


def _cursor_line(line: Text, cursor: Position, suggestion: ShownSuggestion | None) -> Sequence[Text]:
    """The cursor's line with the ghost text in it; it may become several lines."""
    before, after = line[: cursor.column], line[cursor.column :]
    if suggestion is None:
        block, rest = (after[:1], after[1:]) if after else (Text(" "), Text())
        block.stylize("reverse")
        return [Text.assemble(before, block, rest)]
    ghost = [Text(part, style=_GHOST) for part in suggestion.text.split("\n")]
    ghost[0].stylize("reverse", 0, 1)
    ghost[0] = Text.assemble(before, ghost[0])
    ghost[-1] = Text.assemble(ghost[-1], line[suggestion.end.column :])
    return ghost
