"""Typing in a real Neovim, with the real language server, core and model: what is shown, and what gets to the disk."""

from __future__ import annotations

import hashlib
from pathlib import Path

import psutil

from lsp_server.usage.statistics import Statistics, read_statistics, total
from tests.e2e.neovim.conftest import OpenNeovim, on_both
from tests.e2e.neovim.driver import Neovim, until

# Where so much repeats, any model has something to say somewhere in the next line.
CODE = """\
import os
import sys


class Point:
    def __init__(self, x, y, name):
        self.x = x
        self.y = y
        self.name = name

    def show(self):
        print(self.x)
        print(self.y)
        print(self.name)


class Circle:
    def __init__(self, x, y, name):
        self.x = x
        self.y = y
        self.name = name

    def show(self):
"""
LINE = "        print(self.x)"


def type_until_ghost(neovim: Neovim, line: str = LINE) -> str:
    """Type a new last line until a suggestion is shown: its text."""
    neovim.keys("Go<C-u>")
    until(lambda: neovim.mode() == "i")
    typed = neovim.text()
    for character in line[:-1]:
        neovim.keys(character)
        typed += character
        until(lambda expected=typed: neovim.text() == expected and neovim.answered())  # type: ignore[misc]
        if offer := neovim.offer():
            until(neovim.ghost)
            return offer
    raise AssertionError(f"no suggestion while typing {line!r}")


def check_mirror(neovim: Neovim) -> None:
    """The server's mirror is what the buffer holds."""
    ending = "\r\n" if neovim.api.current.buffer.options["fileformat"] == "dos" else "\n"
    text = "".join(line.replace("\r", " ") + ending for line in neovim.api.current.buffer[:])
    expected = hashlib.sha256(text.encode()).hexdigest()
    request = (
        "local params = { textDocument = vim.lsp.util.make_text_document_params(0) }"
        "local answers = vim.lsp.buf_request_sync(0, 'midfill/documentHash', params, 5000)"
        "local _, answer = next(answers or {})"
        "return answer and answer.result and answer.result.sha256"
    )
    until(lambda: neovim.lua(request) == expected, 5.0)


@on_both
def test_a_suggestion_is_shown_and_accepted(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    offer = type_until_ghost(neovim)
    assert neovim.ghost() == offer
    before = neovim.text()
    neovim.keys("<M-l>")
    until(lambda: neovim.text() == before + offer)
    assert neovim.ghost() != offer
    neovim.keys("<Esc>")
    assert neovim.write() == f"{before}{offer}\n".encode()
    assert neovim.ghost() == ""
    check_mirror(neovim)


@on_both
def test_with_the_popup_open_its_keys_stay_its_own(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE, before="vim.o.completeopt = 'menu,menuone'")
    neovim.until_ready()
    neovim.keys("Go<C-u>        print(self.na<C-n>")
    until(lambda: neovim.lua("return vim.fn.pumvisible()"))
    until(neovim.answered)
    until(lambda: neovim.ghost() == neovim.offer())
    selected = neovim.text()
    assert selected.endswith("print(self.name")
    neovim.keys("<C-y>")
    until(lambda: not neovim.lua("return vim.fn.pumvisible()"))
    assert neovim.text() == selected
    until(neovim.answered)
    until(lambda: neovim.ghost() == neovim.offer())
    neovim.keys("<Esc>")
    assert neovim.write() == f"{selected}\n".encode()
    check_mirror(neovim)


def test_a_carriage_return_within_a_line_moves_no_other_line(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(f"# 😋é\r# b\n# c\r\n{CODE}")
    neovim.until_ready()
    offer = type_until_ghost(neovim)
    before = neovim.text()
    neovim.keys("<M-l><Esc>")
    until(lambda: neovim.text() == before + offer)
    neovim.keys("ggA!\r!<Esc>j$i?<Esc>")
    until(lambda: neovim.text().startswith("# 😋é\r# b!\n!"))
    check_mirror(neovim)


def test_a_killed_language_server_comes_back(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    type_until_ghost(neovim)
    client = neovim.lua("return require('midfill.client').of(0).id")
    for process in language_servers(neovim):
        process.kill()
    until(lambda: neovim.lua("local c = require('midfill.client').of(0); return c and c.id") not in (None, client))
    neovim.until_ready()
    neovim.keys("<Esc>u")
    type_until_ghost(neovim)
    check_mirror(neovim)


def language_servers(neovim: Neovim) -> list[psutil.Process]:
    editor = psutil.Process(neovim.lua("return vim.fn.getpid()"))
    return [child for child in editor.children(recursive=True) if "lsp" in child.cmdline()]


@on_both
def test_words_and_the_rest_are_counted_once(open_neovim: OpenNeovim, tmp_path: Path) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    offer = type_until_ghost(neovim)
    before = neovim.text()
    neovim.keys("<M-Right>")
    until(lambda: neovim.text() != before)
    is_whole = neovim.text() == before + offer
    if not is_whole:
        neovim.until_ghost()
        neovim.keys("<M-l>")
        until(lambda: neovim.text().startswith(before + offer))
    accepted = len(neovim.text()) - len(before)
    neovim.keys("<Esc>ddu")  # the cursor's line goes and returns: nothing new is typed or accepted
    (state,) = tmp_path.glob("home-*/state")

    def counted() -> Statistics:
        return total(read_statistics(state / "midfill" / "statistics.sqlite").values())

    until(lambda: counted().accepted_characters)
    assert counted().accepted_characters == accepted
    assert (counted().accepted, counted().accepted_partly) == ((1, 0) if is_whole else (0, 1))
    assert counted().shown <= len(LINE)
    neovim.keys("A#<Esc>")
    until(lambda: counted().typed_characters)
    assert counted().typed_characters <= len(LINE) + 2  # and the line end of `o`; what comes in one change is a paste
    neovim.api.command("Midfill stats")
    until(lambda: "midfill on this machine" in neovim.text())
    assert "python" in neovim.text()
    neovim.api.command("Midfill stats")  # in place of the former
    until(lambda: neovim.lua("return vim.fn.winnr('$')") == 2 and "python" in neovim.text())


@on_both
def test_tells_its_state_and_on_request_the_cost(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim(CODE)
    neovim.until_ready()
    type_until_ghost(neovim)
    neovim.keys("<M-l><Esc>")
    until(lambda: neovim.mode() == "n")
    assert neovim.lua("return require('midfill').statusline()") == "midfill"
    status = neovim.api.command_output("Midfill status")
    assert "midfill: ready\nmodel: tiny on cpu\nlast prompt: " in status
    neovim.api.command("checkhealth midfill")
    health = "\n".join(neovim.api.current.buffer[:])
    assert "ERROR" not in health
    assert "ready tiny cpu" in health
