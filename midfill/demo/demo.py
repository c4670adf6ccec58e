"""The demo from start to end: plays the recording, and shows it live, as plain lines or as a moving picture.

Every row of the screen is drawn once for each time that it changes, and shown for as long as it stays so. A program
that does not animate SVG shows the keystroke before an acceptance.
"""

from __future__ import annotations

import html
import io
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.color import Color
from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.panel import Panel
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.terminal_theme import TerminalTheme
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
        yield lambda keystrokes: console.print(
            plain_line(keystrokes[-1]), markup=False, highlight=False, soft_wrap=True
        )
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
        f"   recomputed {total.recomputed_tokens:,} of {total.prompt_tokens:,} tokens"
        f"   median {total.median_ms:.0f} ms",
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


_THEME = TerminalTheme(
    background=(24, 27, 34),
    foreground=(222, 226, 234),
    normal=[
        (40, 44, 52),
        (255, 107, 91),
        (126, 211, 133),
        (240, 200, 110),
        (97, 175, 239),
        (208, 140, 230),
        (86, 200, 205),
        (171, 178, 191),
    ],
    bright=[
        (128, 137, 155),
        (255, 134, 120),
        (152, 225, 158),
        (250, 220, 140),
        (130, 195, 250),
        (225, 165, 245),
        (120, 220, 225),
        (255, 255, 255),
    ],
)
_PICTURE_ROWS = 13
_CELL, _LINE = 8.4, 18  # a character of 14 px; each row is stretched to its cells, whatever the font
_MARGIN = 12
_KEY_S, _JUMP_S, _READ_S, _ACCEPTED_S, _END_S = 0.09, 0.7, 0.9, 0.6, 3.0
_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the screen as it is from one keystroke, by its number, to before another."""

    place: int
    segments: tuple[Segment, ...]
    first: int
    end: int


def write_picture(path: Path, keystrokes: Sequence[Keystroke], name: str, language: str) -> None:
    """Write the SVG."""
    screens = [_screen(key, name, language) for key in keystrokes]
    starts = [0.0]
    for index in range(len(keystrokes)):
        starts.append(starts[-1] + _seconds(keystrokes, index))
    styles: dict[Style, str] = {}
    still = _telling(keystrokes)
    rows = [_draw(row, starts, still, styles) for row in _rows(screens)]
    width, height = WIDTH * _CELL + 2 * _MARGIN, len(screens[0]) * _LINE + 2 * _MARGIN
    rules = "".join(f".{name}{{{_css(style)}}}" for style, name in styles.items())
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}">'
        f"<style>text{{font:14px {_FONT};fill:{_THEME.foreground_color.hex};white-space:pre}}{rules}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="{_THEME.background_color.hex}"/>\n'
        f'<g transform="translate({_MARGIN} {_MARGIN + 13})">\n{"".join(rows)}</g></svg>\n',
        encoding="utf-8",
    )


def _screen(key: Keystroke, name: str, language: str) -> list[tuple[Segment, ...]]:
    """The rows of the screen after a keystroke."""
    console = Console(width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    code = _lines(console, code_view(key, _PICTURE_ROWS, language))
    blank = [()] * (_PICTURE_ROWS - len(code) + 1)
    return [
        *_lines(console, Text(name, "bold")),
        (),
        *code,
        *blank,
        *_lines(console, cost_table([key], timed=False)),
    ]


def _lines(console: Console, shown: RenderableType) -> list[tuple[Segment, ...]]:
    """The rendered lines, without the blanks at their ends."""
    lines = (tuple(Segment.simplify(line)) for line in console.render_lines(shown, pad=False))
    return [line[:-1] if line and _is_blank(line[-1]) else line for line in lines]


def _is_blank(segment: Segment) -> bool:
    return not segment.text.strip() and not (segment.style and segment.style.reverse)


def _rows(screens: Sequence[Sequence[tuple[Segment, ...]]]) -> Iterator[_Row]:
    for place in range(len(screens[0])):
        first = 0
        for index in range(1, len(screens) + 1):
            if index == len(screens) or screens[index][place] != screens[first][place]:
                yield _Row(place, screens[first][place], first, index)
                first = index


def _seconds(keystrokes: Sequence[Keystroke], index: int) -> float:
    """How long the screen stays as this keystroke leaves it."""
    if index + 1 == len(keystrokes):
        return _END_S
    now, following = keystrokes[index].kind, keystrokes[index + 1].kind
    if following == "accept":
        return _READ_S
    return {"jump": _JUMP_S, "accept": _ACCEPTED_S}.get(now, _KEY_S)


def _draw(row: _Row, starts: Sequence[float], still: int, styles: dict[Style, str]) -> str:
    """The row as an element that is visible in its time."""
    cells = sum(segment.cell_length for segment in row.segments)
    text = "".join(_span(segment, styles) for segment in row.segments)
    if not row.segments:
        return ""
    blocks = "".join(_blocks(row.segments))
    drawn = f'{blocks}<text textLength="{cells * _CELL:g}" xml:space="preserve">{text}</text>'
    whole = starts[-1]
    begin, end = starts[row.first] / whole, starts[row.end] / whole
    if begin == 0 and end == 1:
        return f'<g transform="translate(0 {row.place * _LINE})">{drawn}</g>\n'
    values = [*(["hidden"] if begin else []), "visible", *(["hidden"] if end < 1 else [])]
    times = ["0", *([f"{begin:.4f}"] if begin else []), *([f"{end:.4f}"] if end < 1 else [])]
    hidden = "" if row.first <= still < row.end else ' visibility="hidden"'
    return (
        f'<g transform="translate(0 {row.place * _LINE})"{hidden}><animate attributeName="visibility" '
        f'values="{";".join(values)}" keyTimes="{";".join(times)}" dur="{whole:.1f}s" calcMode="discrete" '
        f'repeatCount="indefinite"/>{drawn}</g>\n'
    )


def _span(segment: Segment, styles: dict[Style, str]) -> str:
    text = html.escape(segment.text, quote=False)
    style = segment.style or Style.null()
    if not _css(style) or _is_blank(segment):
        return text
    return f'<tspan class="{styles.setdefault(style, f"s{len(styles)}")}">{text}</tspan>'


def _blocks(segments: Sequence[Segment]) -> Iterator[str]:
    """The cursor: what is drawn in reverse stands on a block of the text's colour."""
    column = 0
    for segment in segments:
        if segment.style and segment.style.reverse:
            size = f'width="{segment.cell_length * _CELL:g}" height="{_LINE}"'
            yield f'<rect x="{column * _CELL:g}" y="-14" {size} fill="{_colour(segment.style.color)}"/>'
        column += segment.cell_length


def _css(style: Style) -> str:
    """The declarations of a style; none if it looks like plain text."""
    colour = _THEME.background_color.hex if style.reverse else _colour(style.color)
    parts = [f"fill:{colour}"] if colour != _THEME.foreground_color.hex else []
    parts += ["font-weight:bold"] * bool(style.bold) + ["font-style:italic"] * bool(style.italic)
    return ";".join([*parts, *(["opacity:.6"] * bool(style.dim))])


def _colour(colour: Color | None) -> str:
    return (colour or Color.default()).get_truecolor(_THEME).hex


def _telling(keystrokes: Sequence[Keystroke]) -> int:
    """The index of a keystroke with a suggestion: preferably the last one before its acceptance."""

    def worth(index: int) -> tuple[bool, bool, int]:
        after = [key.kind for key in keystrokes[index + 1 : index + 3]]
        accepted = after[:1] == ["accept"] and after[-1] != "undo"
        return keystrokes[index].suggestion is not None, accepted, index

    return max(range(len(keystrokes)), key=worth)


_WORDS = {"starting": "starting the core", "unloaded": "the core has started", "loading": "loading the model"}
_SECONDS_PER_KEY = 0.08
_SAMPLES = Path(__file__).parents[1] / "samples"
_OTHER_LAYOUTS: tuple[Strategy, ...] = ("psm", "spm")


async def run_demo(
    console: Console, settings: Settings, sample: str, speed: float, share: bool, svg: Path | None
) -> None:
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
    other_layouts = {
        name: await mean_recomputed(name, settings, language, recorded.start, keystrokes) for name in _OTHER_LAYOUTS
    }
    result = report(summarize(keystrokes), other_layouts, status.model, status.device)
    console.print(result)
    console.print()
    command = "midfill" if shutil.which("midfill") else Path(sys.executable).with_name("midfill")
    console.print(
        f"Connect your editor: docs/editors.md has the lines for VS Code, Neovim, Helix and others. They run "
        f"`{command} lsp`.",
        soft_wrap=True,
    )
    if svg is not None:
        write_picture(svg, keystrokes, sample, language)
        console.print(f"wrote the picture to {svg}")


def _report(waiting: Waiting, status: ServerStatus) -> None:
    waiting.on(status.message or _WORDS.get(status.state, status.state), status.progress)
