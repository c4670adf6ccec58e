"""The picture of a run: an SVG of a terminal with one representative frame and the result."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from midfill.demo.player import Keystroke
from midfill.demo.views import LOG_ROWS, WIDTH, frame

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


def write_picture(path: Path, keystrokes: Sequence[Keystroke], result: RenderableType) -> None:
    """Write the SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Group(frame(keystrokes[: _telling(keystrokes) + 1]), Text(), result))
    console.save_svg(str(path), title="midfill demo", theme=_THEME)


def _telling(keystrokes: Sequence[Keystroke]) -> int:
    """The index of a keystroke with a suggestion: preferably just before its acceptance, or shortly after a jump."""

    def worth(index: int) -> tuple[bool, bool, bool, int]:
        after = [key.press for key in keystrokes[index + 1 : index + 3]]
        accepted = bool(after) and after[0].accepted and not after[-1].undone
        listed = keystrokes[max(0, index + 1 - LOG_ROWS) : index + 1]
        jumped = any(key.press.jumped for key in listed)
        return keystrokes[index].suggestion is not None, accepted, jumped, index

    return max(range(len(keystrokes)), key=worth)
