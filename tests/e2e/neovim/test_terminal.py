"""Neovim in a terminal, as a user sees it: typed into through tmux, and read off its screen."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import READY_SECONDS
from tests.e2e.neovim.conftest import on_both
from tests.e2e.neovim.driver import Program, environment, init_script, soon, until
from tests.e2e.neovim.terminal import Terminal, running

CODE = """\
import json


def read_text(path):
    with open(path, "r") as file:
        return file.read()


def read_json(path):
    with open(path, "r") as file:
        return json.load(file)


def write_text(path, text):
    with open(path, "w") as file:
        file.write(text)


def write_json(path, value):
"""
LOOK = """
vim.o.termguicolors = true
vim.o.number = true
vim.o.showmode = false
vim.o.statusline = " %t %m%=%{v:lua.require'midfill'.statusline()}  %l:%c "
vim.o.laststatus = 2
vim.api.nvim_set_hl(0, 'Normal', { fg = '#e0e2ea' })
vim.api.nvim_set_hl(0, 'ComplHint', { fg = '#8a8f98', italic = true })
vim.api.nvim_set_hl(0, 'MidfillGhost', { link = 'ComplHint' })
"""
GHOST_COLOUR = "38;2;138;143;152"
READY = re.compile(r"midfill +1:1")
AN_ANSWER = 3.0


@pytest.fixture
def terminal(program: Program, tmux: Path, runtime: Path, tmp_path: Path) -> Iterator[Terminal]:
    """Neovim with the file `files.py`, in a terminal."""
    (tmp_path / "files.py").write_text(CODE, encoding="utf-8")
    init = tmp_path / "init.lua"
    init.write_text(init_script("{ settings = { holdBackPercent = 0 } }", LOOK), encoding="utf-8")
    command = [str(program.path), "-u", str(init), "-i", "NONE", "-n", str(tmp_path / "files.py")]
    with environment(tmp_path, runtime), running(tmux, tmp_path, command) as terminal:
        yield terminal


def ghost_lines(terminal: Terminal) -> list[str]:
    """The lines of the screen that hold ghost text."""
    return [line for line in terminal.screen(escapes=True).splitlines() if GHOST_COLOUR in line]


def type_until_ghost(terminal: Terminal, beginning: str, then: str) -> None:
    """Type the beginning of a line, and then on, key by key, until a suggestion is seen."""
    for keys in (beginning, *then):
        terminal.type_text(keys)
        if not keys.isspace() and soon(lambda: ghost_lines(terminal), AN_ANSWER):
            return
    raise AssertionError(f"no suggestion while typing {beginning + then!r}:\n{terminal.screen()}")


@on_both
def test_ghost_text_is_seen_and_accepted(terminal: Terminal, program: Program, tmp_path: Path) -> None:
    until(lambda: READY.search(terminal.screen()), READY_SECONDS)
    terminal.type("G", "o", "C-u")
    type_until_ghost(terminal, "    with open(path", ', "w") as file')
    take_picture(terminal, program)
    shown = terminal.screen()
    terminal.type("M-l")
    until(lambda: not ghost_lines(terminal) or terminal.screen() != shown)
    terminal.type("Escape")
    terminal.type(":write", "Enter")
    until(lambda: (tmp_path / "files.py").read_text(encoding="utf-8") != CODE)
    written = (tmp_path / "files.py").read_text(encoding="utf-8").removeprefix(CODE).rstrip("\n")
    for line in written.splitlines():
        assert line.strip() in shown


def take_picture(terminal: Terminal, program: Program) -> None:
    """Write what the screen shows to the SVG file that NEOVIM_PICTURE names, for the docs."""
    if file := os.environ.get("NEOVIM_PICTURE"):
        terminal.save_picture(Path(f"{file}.{program}.svg"), "Neovim with midfill")
