"""A terminal without a screen: tmux with one window, typed into and read."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS, ROWS = 78, 24


class Terminal:
    """One tmux with one window."""

    def __init__(self, tmux: Path, socket: Path) -> None:
        self._tmux = [str(tmux), "-S", str(socket), "-f", os.devnull, "-u"]

    def run(self, *arguments: str) -> str:
        """Run a command of tmux: what it printed."""
        return subprocess.run([*self._tmux, *arguments], check=True, capture_output=True, text=True).stdout

    def type(self, *keys: str) -> None:
        """Press keys, by tmux's names."""
        self.run("send-keys", *keys)

    def type_text(self, text: str) -> None:
        """Type the text as it stands."""
        self.run("send-keys", "-l", f"{text[:-1]}\\;" if text.endswith(";") else text)  # tmux ends commands at one

    def screen(self, *, escapes: bool = False) -> str:
        """What is on the screen; with its colours, as escape sequences, where asked for."""
        return self.run("capture-pane", "-p", *(["-e"] if escapes else []))

    def save_picture(self, file: Path, title: str) -> None:
        """Write what is on the screen to an SVG file."""
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            console = Console(record=True, width=COLUMNS, force_terminal=True, color_system="truecolor", file=nowhere)
            console.print(Text.from_ansi(self.screen(escapes=True)))
        console.save_svg(str(file), title=title)


@contextmanager
def running(tmux: Path, folder: Path, command: Sequence[str]) -> Iterator[Terminal]:
    """A terminal that runs the command, in the present environment; it ends with the block."""
    terminal = Terminal(tmux, folder / "tmux")
    start = ["new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS)]
    outside = {name: value for name in ("TMUX", "LC_ALL", "COLORTERM") if (value := os.environ.pop(name, None))}
    os.environ |= {"LC_ALL": "C.UTF-8", "COLORTERM": "truecolor"}
    try:
        terminal.run(*start, shlex.join(command))
    finally:
        os.environ.update(outside)
    terminal.run("set-option", "-s", "escape-time", "20")  # Escape is a key of its own
    try:
        yield terminal
    finally:
        terminal.run("kill-server")
