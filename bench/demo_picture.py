"""Draws the picture of the README: a recorded session's typing as an SVG file that moves.

Every row of the screen is drawn once for each time that it changes, and shown for as long as it stays so. A program
that does not animate SVG shows the keystroke before an acceptance.
"""

from __future__ import annotations

import asyncio
import html
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from demo_session import LANGUAGE, NAME, WIDTH, Keystroke, code_view, cost_table, record
from rich.color import Color
from rich.console import Console, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

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
    return [*_lines(console, Text(name, "bold")), (), *code, *blank, *_lines(console, cost_table(key))]


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


def main(file: Annotated[Path, typer.Argument(help="The SVG file to write.")]) -> None:
    """Play the session with a language server and a core, and write its picture."""
    write_picture(file, asyncio.run(record()), NAME, LANGUAGE)


if __name__ == "__main__":
    typer.run(main)
