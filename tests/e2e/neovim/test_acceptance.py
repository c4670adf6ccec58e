"""Accepted text as part of what was typed: repeated by `.`, undone in one step, and touched by nothing else."""

from __future__ import annotations

import pytest

from tests.e2e.neovim.conftest import OpenScripted, on_both
from tests.e2e.neovim.driver import Neovim, Program, until
from tests.e2e.neovim.script import Script

pytestmark = on_both  # undo, macros and `.` are Neovim's

BLOCK = "x:\n        pass\n    else:\n        two three four five six"
# What would change typed text: indentation, comment leaders, line breaks, mappings, abbreviations, closed brackets.
MEDDLING = """
vim.cmd('filetype plugin indent on')
vim.o.autoindent, vim.o.textwidth = true, 30
vim.api.nvim_create_autocmd('FileType', { callback = function() vim.opt_local.formatoptions = 'tcroq' end })
vim.cmd('inoremap ( ()<C-g>U<Left>')
vim.cmd('inoremap p mapped')
vim.cmd('iabbrev pass abbreviated')
vim.cmd("autocmd InsertCharPre * let v:char = toupper(v:char)")
"""


def accept(neovim: Neovim, script: Script, keys: str, expected: str) -> None:
    """Type, accept what is shown, and type on."""
    neovim.keys(keys)
    assert neovim.until_ghost() == expected
    script.answer()
    neovim.keys("<M-l>")
    until(lambda: not neovim.offer())


def in_normal_mode(neovim: Neovim, keys: str) -> str:
    """The text after these keys."""
    neovim.keys(keys)
    until(lambda: neovim.mode() == "n")
    return neovim.text()


def test_dot_repeats_accepted_text(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("\n\n")
    script.answer("a, b")
    accept(neovim, script, "if(", "a, b")
    assert in_normal_mode(neovim, ")<Esc>j.") == "f(a, b)\nf(a, b)"
    assert in_normal_mode(neovim, "u") == "f(a, b)\n"


def test_dot_repeats_what_was_replaced(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("f()\ng()\n")
    script.answer("a, b):", replaced=1)
    accept(neovim, script, "0la", "a, b):")
    assert in_normal_mode(neovim, "!<Esc>j0l.") == "f(a, b):!\ng(a, b):!"


def test_words_are_repeated_together(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("\n\n")
    script.answer("one two three")
    neovim.keys("i")
    neovim.until_ghost()
    script.answer("late", late=True)
    neovim.keys("<M-Right><M-Right>")
    until(lambda: neovim.text() == "one two\n")
    assert in_normal_mode(neovim, "!<Esc>j.") == "one two!\none two!"


def test_an_accepted_block_is_one_step_of_undo(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("\n")
    script.answer(BLOCK)
    accept(neovim, script, "iif ", BLOCK)
    assert in_normal_mode(neovim, "<Esc>") == f"if {BLOCK}"
    assert in_normal_mode(neovim, "u") == "if "
    assert in_normal_mode(neovim, "<C-r>") == f"if {BLOCK}"


def test_nothing_meddles_with_accepted_text(open_scripted: OpenScripted, script: Script, program: Program) -> None:
    neovim = open_scripted("    if \n    if \n", before=MEDDLING)
    script.answer(BLOCK)
    accept(neovim, script, "A", BLOCK)
    assert in_normal_mode(neovim, "<Esc>") == f"    if {BLOCK}\n    if "
    if "forky" in str(program):  # 0.10 repeats the lines of a block as if they were typed
        assert in_normal_mode(neovim, "G.") == f"    if {BLOCK}\n    if {BLOCK}"


def test_what_is_typed_behind_accepted_text_is_undone_first(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("\n")
    script.answer("foo(bar)")
    accept(neovim, script, "ix = ", "foo(bar)")
    assert in_normal_mode(neovim, " + 1<Esc>") == "x = foo(bar) + 1"
    assert in_normal_mode(neovim, "u") == "x = foo(bar)"
    assert in_normal_mode(neovim, "u") == "x = "
    assert in_normal_mode(neovim, "u") == ""


def test_a_replaced_bracket_comes_back_with_the_undo_of_the_acceptance(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("f()\n")
    script.answer("a):", replaced=1)
    accept(neovim, script, "0la", "a):")
    assert in_normal_mode(neovim, "!<Esc>") == "f(a):!"
    assert in_normal_mode(neovim, "u") == "f(a):"
    assert in_normal_mode(neovim, "u") == "f()"


RECORDED = "\"a\\b\", 'c' <Esc> |\n\t’ñ😋\x16\n  end"


@pytest.mark.parametrize("key", ["<M-l>", "<Tab>"])
def test_a_macro_replays_what_was_accepted(open_scripted: OpenScripted, script: Script, key: str) -> None:
    before = "vim.cmd('inoremap <M-l> mapped') " + MEDDLING
    neovim = open_scripted("f()\n\nf()", options="{ keys = { accept = { '<M-l>', '<Tab>' } } }", before=before)
    script.answer(RECORDED, replaced=1)
    neovim.keys("qa0la")
    assert neovim.until_ghost() == RECORDED
    script.answer()
    neovim.keys(key)
    until(lambda: not neovim.offer())
    expected = f"f({RECORDED}!\n\nf("
    assert in_normal_mode(neovim, "!<Esc>q") == f"{expected})"
    assert in_normal_mode(neovim, "G@a") == f"{expected}{RECORDED}!"


def test_a_macro_replays_words_and_what_was_typed_between(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("\n\n")
    script.answer("one two three")
    neovim.keys("qaqqAi")  # a register that is empty, appended to
    neovim.until_ghost()
    script.answer("late", late=True)
    neovim.keys("<M-Right>")
    until(lambda: neovim.text() == "one\n")
    neovim.keys("!<M-l>?<Esc>")  # nothing is shown behind "!"
    assert in_normal_mode(neovim, "q") == "one!?\n"
    assert in_normal_mode(neovim, "j@a") == "one!?\none!?"
    assert in_normal_mode(neovim, ".") == "one!?\none!one!??"


def test_a_changed_paste_does_not_change_accepted_text(open_scripted: OpenScripted, script: Script) -> None:
    loud = "local paste = vim.paste vim.paste = function(lines, ...) return paste({ lines[1]:upper() }, ...) end"
    neovim = open_scripted("\n", before=loud)
    script.answer("abc")
    accept(neovim, script, "i", "abc")
    assert in_normal_mode(neovim, "<Esc>") == "abc"
    neovim.keys("o")
    neovim.lua("vim.api.nvim_paste('abc', true, -1)")
    until(lambda: neovim.text() == "abc\nABC")
