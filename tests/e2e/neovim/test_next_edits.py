"""Next edits: drawn at rest, reached and applied by one key, and never beside ghost text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.neovim.conftest import OpenScripted, on_both
from tests.e2e.neovim.driver import Neovim, Program, environment, init_script, until
from tests.e2e.neovim.script import Script
from tests.e2e.neovim.terminal import running

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


@on_both
def test_the_cursor_comes_to_stand_behind_the_last_changed_word(open_scripted: OpenScripted, script: Script) -> None:
    parts = [edit_of(0, 5, 5, "\nb = 2"), edit_of(1, 0, 7, "measure")]
    script.answer("", commands=COMMANDS, edit=edit_of(0, 5, 6, "\nb = 2\nmeasur", lines=1) | {"parts": parts})
    neovim = open_scripted("a = 1\ncompute(3)\nc\n")
    neovim.keys("Gx")
    until(lambda: drawn(neovim) == ("compute", "measure\nb = 2"))
    neovim.keys("<M-l><M-l>")
    until(lambda: neovim.text() == "a = 1\nb = 2\nmeasure(3)\n")
    assert tuple(neovim.api.current.window.cursor) == (3, 7)


@on_both
def test_removed_words_are_struck_out_on_the_screen_and_tabs_of_added_ones_kept(
    program: Program, tmux: Path, runtime: Path, tmp_path: Path, script: Script
) -> None:
    script.answer("", commands=COMMANDS, edit=edit_of(2, 4, 6, "b\tb"))
    file, init = tmp_path / "demo.txt", tmp_path / "init.lua"
    file.write_text(TEXT, encoding="utf-8")
    init.write_text(init_script(script.options, "vim.o.vartabstop = '3,6'"), encoding="utf-8")
    command = [str(program.path), "-u", str(init), "-i", "NONE", "-n", str(file)]
    with environment(tmp_path, runtime), running(tmux, tmp_path, command) as terminal:
        until(lambda: script.told("textDocument/didOpen"))
        terminal.type_text("x")
        until(lambda: "c = aab  b\nd = 4" in terminal.screen())
        line = next(line for line in terminal.screen(escapes=True).split("\n") if line.startswith("c = "))
        assert re.search(r"\x1b\[(\d;)?9m(\x1b\[[\d;]+m)*aa\x1b\[0m", line), repr(line)


@on_both
def test_the_note_of_an_edit_out_of_sight_goes_with_the_jump(open_scripted: OpenScripted, script: Script) -> None:
    script.answer("", commands=COMMANDS, edit=edit_of(90, 4, 6, "bb"))
    neovim = open_scripted("x\n" + "c = aa\n" * 100)
    neovim.keys("x")
    until(lambda: drawn(neovim) == ("aa", " next edit in line 91\nbb"))
    marks = "vim.inspect(vim.api.nvim_buf_get_extmarks(0, -1, 0, -1, { details = true }))"
    assert "next edit in line" not in neovim.lua(f"require('midfill.next_edit').go() return {marks}")
    assert tuple(neovim.api.current.window.cursor) == (91, 4)


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
        "vim.api.nvim_input('<Esc>qqA')",
    ],
)
def test_in_a_popup_snippet_or_macro_or_after_a_selection_nothing_is_asked(
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


@on_both
def test_a_jump_opens_the_fold_in_which_the_edit_is_and_the_note_says_where(open_scripted: OpenScripted, script: Script) -> None:
    script.answer("", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    neovim = open_scripted(TEXT)
    neovim.api.command("2,4fold")
    neovim.keys("x")
    until(lambda: drawn(neovim) == ("aa", " next edit in line 3\nbb"))
    neovim.keys("<M-l>")
    until(lambda: tuple(neovim.api.current.window.cursor) == (3, 4))
    assert neovim.api.funcs.foldclosed(3) == -1


@on_both
def test_what_is_typed_behind_an_applied_edit_is_undone_first(open_scripted: OpenScripted, script: Script) -> None:
    script.answer("", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    neovim = open_scripted(TEXT)
    neovim.keys("jjA#")
    until(lambda: drawn(neovim) == ("aa", "bb"))
    script.answer("", commands=COMMANDS)
    neovim.keys("<M-l>")
    until(lambda: "c = bb#" in neovim.text())
    neovim.keys("!<Esc>")
    until(lambda: "c = bb!#" in neovim.text())
    neovim.keys("u")
    until(lambda: "!" not in neovim.text())
    assert "c = bb#" in neovim.text()
    neovim.keys("u")
    until(lambda: "c = aa#" in neovim.text())


@on_both
def test_a_text_that_cannot_be_changed_gets_no_edit(open_scripted: OpenScripted, script: Script) -> None:
    script.answer("", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    neovim = open_scripted(TEXT)
    neovim.keys("x")
    until(lambda: drawn(neovim) == ("aa", "bb"))
    neovim.keys("jj")
    neovim.api.command("set nomodifiable")
    assert neovim.lua("return require('midfill.next_edit').go()") is False


def test_of_two_windows_on_a_buffer_that_of_the_cursor_shows_the_edit(open_scripted: OpenScripted, script: Script) -> None:
    script.answer("", commands=COMMANDS, edit=edit_of(2, 4, 6, "bb"))
    neovim = open_scripted(TEXT)
    neovim.api.command("vsplit")
    row = "vim.cmd.redraw() return vim.fn.join(vim.fn.map(vim.fn.range(1, 80), 'screenstring(3, v:val)'), '')"
    for keys, third in {"x": "c = aabb │c = aa", "<C-w>l": "c = aa │c = aabb"}.items():
        neovim.keys(keys)
        until(lambda third=third: re.sub(" *│", " │", neovim.lua(row)).rstrip() == third)  # type: ignore[misc]
