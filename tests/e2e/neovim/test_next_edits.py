"""Next edits: drawn at rest, reached and applied by one key, and never beside ghost text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.neovim.conftest import OpenScripted, on_both
from tests.e2e.neovim.driver import Neovim, until
from tests.e2e.neovim.script import Script

COMMANDS = ["midfill.nextEditAccepted", "midfill.nextEditRefused"]
TEXT = "a = 1\nb = 2\nc = aa\nd = 4\n"


def edit_of(line: int, start: int, end: int, text: str, lines: int = 0) -> dict[str, Any]:
    span = {"start": {"line": line, "character": start}, "end": {"line": line + lines, "character": end}}
    return {"text": text, "range": span}


PARTS = [edit_of(0, 0, 0, "x\n"), edit_of(0, 4, 5, "10"), edit_of(1, 4, 5, "20"), edit_of(1, 5, 5, "\nbb = 21")]
LINES = edit_of(0, 0, 5, "x\na = 10\nb = 20\nbb = 21", lines=1) | {"parts": PARTS}


def drawn(neovim: Neovim) -> tuple[str, str]:
    """The text that is marked to go, and the new text on the screen."""
    namespace = neovim.api.api.create_namespace("midfill.next_edit")
    marks = neovim.api.current.buffer.api.get_extmarks(namespace, 0, -1, {"details": True})
    old = [
        "\n".join(neovim.api.current.buffer.api.get_text(row, col, more["end_row"], more["end_col"], {}))
        for _, row, col, more in marks
        if more.get("hl_group") == "MidfillEditOld"
    ]
    new = ["".join(chunk[0] for chunk in mark[3].get("virt_text", [])) for mark in marks]
    new += ["".join(chunk[0] for chunk in line) for mark in marks for line in mark[3].get("virt_lines", [])]
    return "".join(old), "\n".join(filter(None, new))


def told(script: Script, command: str) -> list[Any]:
    return [each["arguments"] for each in script.told("workspace/executeCommand") if each["command"] == command]


@on_both
def test_one_key_jumps_and_applies(open_scripted: OpenScripted, script: Script) -> None:
    script.answer("", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    neovim = open_scripted(TEXT)
    neovim.keys("x")
    until(lambda: drawn(neovim) == ("aa", "bb"))
    assert script.told("textDocument/didShowInlineEdit")[0]["item"]["command"]["arguments"] == [1]
    neovim.keys("<M-l>")
    until(lambda: tuple(neovim.api.current.window.cursor) == (3, 4))
    until(lambda: drawn(neovim) == ("aa", "bb"))
    script.answer("", commands=COMMANDS)
    neovim.keys("<M-l>")
    until(lambda: neovim.text().split("\n")[2] == "c = bb")
    until(lambda: told(script, COMMANDS[0]) == [[1]])
    assert drawn(neovim) == ("", "")
    neovim.keys("u")
    until(lambda: neovim.text().split("\n")[2] == "c = aa")


def test_an_edit_of_lines_is_drawn_below_them_and_refused_by_a_key(open_scripted: OpenScripted, script: Script) -> None:
    script.answer("", commands=COMMANDS, edit=LINES)
    neovim = open_scripted(TEXT)
    neovim.keys("jjx")
    until(lambda: drawn(neovim) == ("12", "x⏎\n10\n20\nbb = 21"))
    neovim.lua("return require('midfill.next_edit').refuse()")
    until(lambda: told(script, COMMANDS[1]) == [[1]])
    assert drawn(neovim) == ("", "")


@on_both
def test_typing_hides_it_and_ghost_text_comes_first(open_scripted: OpenScripted, script: Script) -> None:
    script.answer("", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    neovim = open_scripted(TEXT)
    neovim.keys("x")
    until(lambda: drawn(neovim) == ("aa", "bb"))
    script.answer("ghost", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    neovim.keys("A#")
    neovim.until_ghost()
    asked = len(script.told("textDocument/copilotInlineEdit"))
    neovim.lua("vim.wait(500)")
    assert drawn(neovim) == ("", "")
    assert len(script.told("textDocument/copilotInlineEdit")) == asked
    script.answer("", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    neovim.keys("#")
    until(lambda: drawn(neovim) == ("aa", "bb"))  # at rest while inserting
    neovim.keys("<M-l><M-l>")
    until(lambda: "c = bb" in neovim.text())
    assert neovim.mode() == "i"


@pytest.mark.parametrize(
    "enter",
    [
        "package.loaded['cmp'] = { visible = function() return true end }",
        "vim.api.nvim_input('<Esc>ggVj<Esc>G$A')",
        "vim.o.completeopt = 'menuone,noinsert' vim.fn.complete(1, { 'xab', 'xac' })",
        "vim.snippet.expand('f($1)$0')",
    ],
)
def test_in_a_popup_or_snippet_or_after_a_selection_nothing_is_asked(
    open_scripted: OpenScripted, script: Script, enter: str
) -> None:
    script.answer("", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    neovim = open_scripted(TEXT)
    neovim.keys("Gox")
    until(lambda: drawn(neovim) == ("aa", "bb"))
    asked = len(script.told("textDocument/copilotInlineEdit"))
    neovim.lua(enter)
    neovim.keys("a")
    neovim.lua("vim.wait(700)")
    assert len(script.told("textDocument/copilotInlineEdit")) == asked


def test_a_server_without_next_edits_is_not_asked(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted(TEXT)
    neovim.keys("x")
    neovim.lua("vim.wait(400)")
    assert script.told("textDocument/copilotInlineEdit") == []
