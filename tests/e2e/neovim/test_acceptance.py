"""Accepted text as part of what was typed: repeated by `.`, undone in one step, and touched by nothing else."""

from __future__ import annotations

from tests.e2e.neovim.conftest import OpenScripted
from tests.e2e.neovim.driver import Neovim, Program, until
from tests.e2e.neovim.script import Script

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
