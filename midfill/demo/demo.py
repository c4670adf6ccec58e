"""The demo from start to end: plays the recording, and shows it live or as plain lines."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from lsp_server.documents.documents import Position
from lsp_server.documents.languages import language_id_of
from midfill.core_to_ask import Waiting
from midfill.demo.player import OUTCOME_STYLES, Keystroke, mean_recomputed, play, report, summarize
from midfill.headless.lsp_process import LanguageServerFailed
from midfill.headless.lsp_session import ServerStatus, ShownSuggestion, UsageReport
from midfill.replay.player import open_server
from midfill.replay.trace import play as steps_of
from midfill.replay.trace import read_trace
from protocol.settings import Settings, Strategy

WIDTH = 80
LOG_ROWS = 6
_BAR_CELLS = 20
_PLAIN_GHOST_LENGTH = 60
_CODE_ROWS = 17
_OTHER_ROWS = 14  # of the frame, beside the code
GHOST = "italic bright_black"


@contextmanager
def showing(console: Console, name: str, language: str) -> Iterator[Callable[[Sequence[Keystroke]], None]]:
    """A function that shows the newest keystroke: in a frame that it redraws, or as a line if there is no terminal."""
    if not console.is_terminal:
        yield lambda keystrokes: console.print(plain_line(keystrokes[-1]), markup=False, highlight=False, soft_wrap=True)
        return

    def draw(keystrokes: Sequence[Keystroke]) -> None:
        code_rows = max(6, min(_CODE_ROWS, console.height - _OTHER_ROWS))
        live.update(frame(keystrokes, name, language, code_rows), refresh=True)

    with Live(console=console, auto_refresh=False) as live:
        yield draw


def plain_line(key: Keystroke) -> str:
    """A keystroke's cost, and the line of the cursor with the suggestion."""
    line = key.lines[key.cursor.line].rstrip("\n")
    ghost = key.suggestion.text.replace("\n", "⏎") if key.suggestion else ""
    if len(ghost) > _PLAIN_GHOST_LENGTH:
        ghost = f"{ghost[:_PLAIN_GHOST_LENGTH]}…"
    tail = line[(key.suggestion.end if key.suggestion else key.cursor).column :]
    text = f"{line[: key.cursor.column]}▏{ghost and f'«{ghost}»'}{tail}".strip()
    return f"{_plain_cost(key)}  {text}"


def frame(keystrokes: Sequence[Keystroke], name: str, language: str, code_rows: int = _CODE_ROWS) -> RenderableType:
    """The code, the costs of the last keystrokes, and the totals so far."""
    code = Panel(
        code_view(keystrokes[-1], code_rows, language),
        title=f"[bold]{name}",
        title_align="left",
        border_style="bright_black",
        height=code_rows + 2,
    )
    return Constrain(Group(code, _log(keystrokes[-LOG_ROWS:]), Text(), _totals(keystrokes)), WIDTH)


def cost_table(keystrokes: Sequence[Keystroke], *, timed: bool = True) -> Table:
    """A row for each keystroke, with `timed` its milliseconds too; all but the last one are dim."""
    table = Table(box=None, expand=True, padding=(0, 1), header_style="bright_black")
    table.add_column("key", width=16, no_wrap=True)
    table.add_column("", width=6)
    table.add_column("recomputed", width=_BAR_CELLS)
    table.add_column("of prompt tokens", justify="right", width=17)
    if timed:
        table.add_column("ms", justify="right", width=5)
    for index, key in enumerate(keystrokes):
        style = None if index == len(keystrokes) - 1 else "dim"
        table.add_row(key.label, *_cost_cells(key)[: None if timed else -1], style=style)
    return table


def _log(keystrokes: Sequence[Keystroke]) -> Table:
    table = cost_table(keystrokes)
    for _ in range(LOG_ROWS - len(keystrokes)):
        table.add_row()
    return table


def _cost_cells(key: Keystroke) -> tuple[RenderableType, ...]:
    cost = key.cost
    if cost is None:
        return ("", "resident already" if key.kind == "jump" else "nothing to suggest", "", "")
    outcome = Text(cost.cache_outcome, style=OUTCOME_STYLES[cost.cache_outcome])
    usage = cost.usage
    if cost.source == "typed":
        return (outcome, "typed as suggested", "0", f"{key.milliseconds:.0f}")
    tokens = f"{usage.recomputed_tokens:,} of {usage.prompt_tokens:,}"
    if cost.is_prefetch:
        return (Text("prefetch", style="magenta"), _bar(cost, "magenta"), tokens, "")
    return (outcome, _bar(cost, OUTCOME_STYLES[cost.cache_outcome]), tokens, f"{key.milliseconds:.0f}")


def _bar(cost: UsageReport, style: str) -> Text:
    """A bar of the recomputed share of the prompt; visible if any token was recomputed."""
    usage = cost.usage
    eighths = round(8 * _BAR_CELLS * usage.recomputed_tokens / max(1, usage.prompt_tokens))
    full, part = divmod(max(eighths, 1 if usage.recomputed_tokens else 0), 8)
    bar = "█" * full + " ▏▎▍▌▋▊▉"[part].strip()
    return Text.assemble((bar, style), ("·" * (_BAR_CELLS - len(bar)), "bright_black"))


def _totals(keystrokes: Sequence[Keystroke]) -> Text:
    total = summarize(keystrokes)
    return Text.assemble(
        f" {total.requests} keystrokes   ",
        (f"{total.hit_share:.0%} hits", OUTCOME_STYLES["hit"]),
        f"   recomputed {total.recomputed_tokens:,} of {total.prompt_tokens:,} tokens   median {total.median_ms:.0f} ms",
    )


def _plain_cost(key: Keystroke) -> str:
    cost = key.cost
    if cost is None:
        return f"{key.label:<16} {'-':<8} {'':>22} {'':>7}"
    usage = cost.usage
    outcome = "prefetch" if cost.is_prefetch else cost.cache_outcome
    tokens = f"{usage.recomputed_tokens} of {usage.prompt_tokens} tokens" if cost.source == "core" else "0 tokens"
    return f"{key.label:<16} {outcome:<8} {tokens:>22} {key.milliseconds:>4.0f} ms"


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
    tail = line[suggestion.end.column :]
    ghost = [Text(part, style=GHOST) for part in suggestion.text.split("\n")]
    ghost[0].stylize("reverse", 0, 1)
    ghost[0] = Text.assemble(before, ghost[0])
    ghost[-1] = Text.assemble(ghost[-1], tail)
    return ghost


_WORDS = {"starting": "starting the core", "unloaded": "the core has started", "loading": "loading the model"}
_SECONDS_PER_KEY = 0.08
_SAMPLES = Path(__file__).parents[1] / "samples"
_OTHER_LAYOUTS: tuple[Strategy, ...] = ("psm", "spm")


async def run_demo(console: Console, settings: Settings, sample: str, speed: float, *, share: bool = False) -> list[Keystroke]:
    """Type the recorded session of a sample file; MidfillError if anything fails. `speed` 1 is 12 keys per second."""
    recorded = read_trace(_SAMPLES / f"{sample}.json")
    language, keystrokes = language_id_of(Path(sample).suffix), list[Keystroke]()
    with Waiting() as waiting:
        waiting.on("starting the language server")
        hear = partial(_report, waiting)
        async with open_server(settings, language, recorded.start, shared=share, hear=hear) as target:
            waiting.over()
            with showing(console, sample, language) as show:
                async for keystroke in play(target, recorded.start, [*steps_of(recorded)], _SECONDS_PER_KEY / speed):
                    keystrokes.append(keystroke)
                    show(keystrokes)
            status = target.session.status
    if status is None or not any(key.cost for key in keystrokes):
        raise LanguageServerFailed("the language server answered no keystroke: run `midfill doctor`")
    other_layouts = {name: await mean_recomputed(name, settings, language, recorded.start, keystrokes) for name in _OTHER_LAYOUTS}
    result = report(summarize(keystrokes), other_layouts, status.model, status.device)
    console.print(result)
    console.print()
    command = "midfill" if shutil.which("midfill") else Path(sys.executable).with_name("midfill")
    console.print(
        f"Connect your editor: docs/editors.md has the lines for VS Code, Neovim, Helix and others. They run `{command} lsp`.",
        soft_wrap=True,
    )
    return keystrokes


def _report(waiting: Waiting, status: ServerStatus) -> None:
    waiting.on(status.message or _WORDS.get(status.state, status.state), status.progress)
