"""The plugin in a real Neovim against a server that follows a script: late answers, what it is told, how it fails."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from tests.e2e.neovim.conftest import OpenNeovim, OpenScripted, on_both
from tests.e2e.neovim.driver import PLUGIN, Neovim, Program, until
from tests.e2e.neovim.script import Script
from tests.e2e.neovim.test_commands import notify


def release(neovim: Neovim) -> None:
    """Let the oldest late answer arrive."""
    neovim.lua("vim.lsp.buf_request_sync(0, 'test/release', {}, 60000)")


@on_both
def test_an_answer_to_an_earlier_text_is_not_shown(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("\n")
    script.answer("old", late=True)
    neovim.keys("ix")
    until(lambda: script.told("textDocument/inlineCompletion"))
    script.answer("new", late=True)
    neovim.keys("y")
    until(lambda: len(script.told("textDocument/inlineCompletion")) > 1)
    release(neovim)
    assert (neovim.ghost(), neovim.offer()) == ("", "")
    release(neovim)
    assert (neovim.ghost(), neovim.offer()) == ("new", "new")


@pytest.mark.parametrize("keys", ["<Down>", "<Esc>"])
def test_an_answer_for_another_place_or_mode_is_not_shown(open_scripted: OpenScripted, script: Script, keys: str) -> None:
    neovim = open_scripted("one\ntwo\n")
    script.answer("late", late=True)
    neovim.keys("A")
    until(lambda: script.told("textDocument/inlineCompletion"))
    script.answer()
    neovim.keys(keys)
    release(neovim)
    assert (neovim.ghost(), neovim.offer()) == ("", "")


@on_both
def test_what_is_shown_leaves_by_a_key_or_with_insert_mode(open_scripted: OpenScripted, script: Script) -> None:
    """Neovim triggers no InsertLeave for Ctrl-C and for the change to Replace mode."""
    neovim = open_scripted("one\n")
    script.answer("abc def")
    for keys in ("<C-]>", "<Esc>", "<C-c>", "<Insert>", "<C-o>"):
        neovim.keys("<Esc>A")
        neovim.until_ghost()
        neovim.keys(keys)
        until(lambda: (neovim.ghost(), neovim.offer()) == ("", ""))
    assert neovim.text() == "one"


def test_a_key_before_the_suggestion_that_was_asked_for_is_no_text(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("one\n")
    script.answer()
    neovim.keys("A")
    until(neovim.answered)
    script.answer("abc", late=True)
    notify(neovim, "midfill/refresh", textDocument=None, invoked=True)
    until(lambda: any(each["context"]["triggerKind"] == 1 for each in script.told("textDocument/inlineCompletion")))
    neovim.keys("<M-l>")
    assert (neovim.text(), neovim.mode()) == ("one", "i")
    release(neovim)
    assert neovim.until_ghost() == "abc"


def test_of_two_windows_on_a_buffer_that_of_the_cursor_shows_ghost_text(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("one\n")
    neovim.api.command("vsplit")
    script.answer("ghost\nbelow")
    row = "return vim.fn.join(vim.fn.map(vim.fn.range(1, 80), 'screenstring(' .. ... .. ', v:val)'), '')"
    for keys, rows in {"A": ["oneghost |one", "below |~"], "<C-o><C-w>lx": ["xone |xghostone", "~ |below"]}.items():
        neovim.keys(keys)
        neovim.until_ghost()
        neovim.api.command("redraw")
        seen = [re.sub(" *│", " |", neovim.lua(row, number)).rstrip() for number in (1, 2)]
        assert seen == rows


@on_both
def test_what_is_shown_leaves_with_the_first_other_character(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("\n")
    script.answer("abc")
    neovim.keys("i")
    assert neovim.until_ghost() == "abc"
    script.answer("late", late=True)
    neovim.keys("a")
    until(lambda: neovim.offer() == "bc")
    assert neovim.ghost() == "bc"
    neovim.keys("x")
    until(lambda: neovim.text().startswith("ax"))
    assert (neovim.ghost(), neovim.offer()) == ("", "")


def test_a_suggestion_that_ends_as_one_that_no_longer_fits_is_reported(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("\n")
    script.answer("x)")
    neovim.keys("i")
    assert neovim.until_ghost() == "x)"
    script.answer(")")
    neovim.keys("y")
    until(lambda: neovim.ghost() == ")")
    until(lambda: len(script.told("textDocument/didShowCompletion")) == 2)


def test_next_asks_anew_where_none_of_the_alternatives_fits(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("\n")
    script.answer("abc", "abd")
    neovim.keys("i")
    neovim.until_ghost()
    neovim.keys("<M-]>")
    until(lambda: script.told("textDocument/inlineCompletion")[-1]["context"]["triggerKind"] == 1)
    until(lambda: neovim.ghost().startswith("abd"))
    asked = len(script.told("textDocument/inlineCompletion"))
    script.answer("late", late=True)
    neovim.keys("x<M-]>")
    until(lambda: len(script.told("textDocument/inlineCompletion")) > asked)
    until(lambda: script.told("textDocument/inlineCompletion")[-1]["context"]["triggerKind"] == 1)


@on_both
def test_lines_of_a_block_in_a_file_with_crlf(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("def \r\nx\r\n")
    shown = "f(a):\n    b\n\n    c"
    block = shown.replace("\n", "\r\n")
    script.answer(block)
    neovim.keys("A")
    until(lambda: neovim.ghost() == shown)
    script.answer()
    neovim.keys("<M-l>!")
    until(lambda: "!" in neovim.text())
    neovim.keys("<Esc>")
    assert neovim.write() == f"def {block}!\r\nx\r\n".encode()
    assert neovim.api.current.window.cursor[0] == 4


def test_a_block_accepted_line_by_line_and_undone(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("def \n")
    script.answer("f():\n    pass")
    neovim.keys("A")
    neovim.until_ghost()
    script.answer("\n    pass")  # what the server has left to say
    neovim.keys("<M-C-Right>")
    until(lambda: neovim.text() == "def f():")
    until(lambda: neovim.offer() == "\n    pass")
    neovim.keys("<M-C-Right>")
    until(lambda: neovim.text() == "def f():\n    pass")
    neovim.keys("<Esc>u")
    until(lambda: neovim.text() == "def f():")


@on_both
def test_tabs_are_as_wide_as_those_of_the_text(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("a\n")
    neovim.api.command("setlocal tabstop=4 vartabstop=6,2")
    script.answer("\tb\tc\n\t\td")
    neovim.keys("A")
    neovim.until_ghost()
    assert neovim.ghost() == f"{' ' * 5}b c\n{' ' * 8}d"


@on_both
def test_words_of_a_suggestion(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("\n")
    words = ["foo_bar", " =", " día", "(", "x", ")"]
    script.answer("foo_bar = día(x)")
    neovim.keys("i")
    neovim.until_ghost()
    script.answer("late", late=True)
    for count in range(1, len(words) + 1):
        accepted, rest = "".join(words[:count]), "".join(words[count:])
        neovim.keys("<M-Right>")
        until(lambda accepted=accepted: neovim.text() == accepted)  # type: ignore[misc]
        until(lambda rest=rest: neovim.ghost() == neovim.offer() == rest)  # type: ignore[misc]


@on_both
def test_behind_an_emoji(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("😋é()\n")
    script.answer("x) 🎉", replaced=1)
    neovim.keys("A<Left>")
    neovim.until_ghost()
    script.answer()
    neovim.keys("<M-l>!<Esc>")
    until(lambda: neovim.mode() == "n")
    assert neovim.write() == "😋é(x) 🎉!\n".encode()


@on_both
def test_alternatives_are_asked_for_by_hand(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("\n")
    script.answer("one", "two", "three")
    neovim.keys("i")
    assert neovim.until_ghost() == "one"
    kinds = [params["context"]["triggerKind"] for params in script.told("textDocument/inlineCompletion")]
    assert set(kinds) == {2}
    seen = []
    while "three" not in seen:
        before = neovim.offer()
        neovim.keys("<M-]>")
        until(lambda before=before: neovim.offer() not in ("", before), 5.0)  # type: ignore[misc]
        seen.append(neovim.offer())
    assert seen == ["two", "three"]
    assert script.told("textDocument/inlineCompletion")[-1]["context"]["triggerKind"] == 1
    script.answer()
    neovim.keys("<M-l>")
    until(lambda: neovim.text() == "three")


@on_both
def test_the_server_hears_what_became_of_a_suggestion(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("\n")
    command = {"title": "accepted", "command": "midfill.accepted", "arguments": [7]}
    script.answer("😋a b", command=command)
    neovim.keys("i")
    neovim.until_ghost()
    (shown,) = until(lambda: script.told("textDocument/didShowCompletion"))
    assert shown["item"]["insertText"] == "😋a b"
    script.answer(" b", command=command)
    neovim.keys("<M-Right>")
    (part,) = until(lambda: script.told("textDocument/didPartiallyAcceptCompletion"))
    assert part["acceptedLength"] == 3  # in UTF-16
    until(lambda: neovim.offer() == " b")
    neovim.keys("<M-l>")
    (accepted,) = until(lambda: script.told("workspace/executeCommand"))
    assert (accepted["command"], accepted["arguments"]) == ("midfill.accepted", [7])


def test_words_accepted_before_the_next_answer_add_up(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("\r\n")
    script.answer("a b\r\nc d")
    neovim.keys("i")
    neovim.until_ghost()
    script.answer("late", late=True)
    neovim.keys("<M-Right><M-Right>")
    parts = until(lambda: script.told("textDocument/didPartiallyAcceptCompletion")[1:])
    assert [part["acceptedLength"] for part in parts] == [3]
    assert neovim.text().startswith("a b")


@on_both
def test_the_server_hears_of_moves_and_of_what_is_looked_at(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("one\ntwo\nthree\n")
    assert until(lambda: script.told("midfill/didMoveCursor"))[0]["position"] == {"line": 0, "character": 0}
    neovim.keys("jj$")
    until(lambda: script.told("midfill/didMoveCursor")[-1]["position"] == {"line": 2, "character": 4})
    neovim.keys("ddk")  # an edit, then a move: the edit is told first
    until(lambda: script.told("textDocument/didChange"))
    neovim.api.command("split other.py")
    neovim.api.command("wincmd p")
    focused = until(lambda: script.told("textDocument/didFocus"))
    assert focused[-1]["textDocument"]["uri"].endswith("demo.py")


def test_neovims_own_inline_completion_asks_nothing_of_midfill(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("\n", before="vim.lsp.inline_completion.enable()")
    script.answer("abc")
    neovim.keys("i")
    neovim.until_ghost()
    time.sleep(1)  # Neovim's own asks after 0.2 s
    assert (neovim.ghost(), len(script.told("textDocument/inlineCompletion"))) == ("abc", 1)


def test_plug_maps(open_neovim: OpenNeovim, script: Script) -> None:
    before = "vim.keymap.set('i', '<F2>', '<Plug>(midfill-accept)')"
    neovim = open_neovim("\n", options=script.options, before=before)
    until(lambda: script.told("textDocument/didOpen"))
    script.answer("abc")
    neovim.keys("i")
    neovim.until_ghost()
    script.answer()
    neovim.keys("<F2>")
    until(lambda: neovim.text() == "abc")


def test_the_health_check_runs_midfill_itself(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim("", options="{ cmd = { 'env', 'no-such-midfill', 'lsp' } }")
    neovim.api.command("checkhealth midfill")
    assert "ERROR `env no-such-midfill --help` exited with status 127" in neovim.text()


BAD_OPTIONS = [
    ("{ comand = {} }", 'unknown option "comand"'),
    ("{ settings = 3 }", 'option "settings" must be a table, not a number'),
    ("{ keys = { acept = '<Tab>' } }", 'option "keys" has no key "acept"'),
    ("{ keys = { next = { '<F5>', 6 } } }", 'option "keys.next" must be a string, a list of strings, or false'),
    ("{ keys = { next = true } }", 'option "keys.next" must be a string, a list of strings, or false'),
]


def test_bad_options_are_named(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim("", options="{ cmd = { 'no-such-midfill' } }")
    for options, message in BAD_OPTIONS:
        problem = f"local _, problem = pcall(require('midfill.config').set, {options}) return problem"
        assert message in neovim.lua(problem)


def test_subcommands_are_offered(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim("", options="{ cmd = { 'no-such-midfill' } }")
    complete = "return vim.fn.getcompletion('Midfill ' .. ..., 'cmdline')"
    assert neovim.lua(complete, "") == [
        *("act", "cancel", "core", "disable", "enable"),
        *("log", "model", "restart", "snooze", "stats", "status", "suggest"),
    ]
    assert neovim.lua(complete, "disable ") == ["buffer"]
    assert neovim.lua(complete, "core ") == ["list", "stop", "unload"]
    assert neovim.lua(complete, "core s") == ["stop"]


def test_the_help_has_tags_for_everything(program: Program, open_neovim: OpenNeovim, tmp_path: Path) -> None:
    neovim = open_neovim("", options="{ cmd = { 'no-such-midfill' } }")
    docs = tmp_path / "doc"
    shutil.copytree(PLUGIN / "doc", docs)
    neovim.api.command(f"helptags {docs}")
    tags = {line.split("\t")[0] for line in (docs / "tags").read_text(encoding="utf-8").splitlines()}
    functions = neovim.lua("return vim.tbl_keys(require('midfill'))")
    options = neovim.lua("return vim.tbl_keys(require('midfill.config').options)")
    assert {f"midfill.{name}()" for name in functions} <= tags
    assert {f"midfill-option-{name}" for name in [*options, "filetypes"]} <= tags
    assert {f":Midfill-{name}" for name in neovim.lua("return vim.fn.getcompletion('Midfill ', 'cmdline')")} <= tags


OFF = {"settings": ("{ settings = { automatic = false } }", ""), "buffer": ("{}", "Midfill disable buffer")}


@pytest.mark.parametrize("off", OFF)
def test_suggestions_on_request_alone(open_scripted: OpenScripted, script: Script, off: str) -> None:
    options, command = OFF[off]
    neovim = open_scripted("\n", options=options)
    neovim.api.command(command)
    script.answer("abc def")
    neovim.keys("ij")
    until(lambda: neovim.text() == "j")
    neovim.keys("<M-]>")
    assert neovim.until_ghost() == "abc def"
    neovim.keys("a")  # typed as suggested: the rest stays
    until(lambda: neovim.ghost() == neovim.offer() == "bc def")
    neovim.keys("<M-Right>")
    until(lambda: neovim.text() == "jabc" and neovim.ghost() == " def")
    neovim.keys("!")
    until(lambda: neovim.ghost() == "")
    script.answer("abc def", "xyz")
    neovim.keys("<Esc>:Midfill suggest<CR>")  # where the user inserted last
    assert neovim.until_ghost() == "abc def"
    neovim.keys("<M-]>")
    until(lambda: neovim.offer() == "xyz")
    neovim.keys("<M-l><Esc>")
    until(lambda: neovim.mode() == "n")
    assert neovim.text() == "jabc!xyz"
    assert [each["context"]["triggerKind"] for each in script.told("textDocument/inlineCompletion")] == [1, 1]
