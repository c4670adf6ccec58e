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


def test_a_buffer_without_a_name_gets_messages_and_suggestions(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("")
    script.answer("abc")
    neovim.api.command("enew | set filetype=python")
    until(lambda: len(script.told("textDocument/didOpen")) == 2)
    before = neovim.lua("return #vim.api.nvim_list_bufs()")
    reason = {"kind": "off", "text": "off", "explanation": "Why.", "actions": [], "lasts": True}
    notify(neovim, "midfill/reason", textDocument=None, reason=reason)
    assert "Why." in neovim.lua("return vim.fn.execute('Midfill')")
    notify(neovim, "midfill/reason", textDocument={"uri": "file:///nowhere.py"}, reason=reason)
    neovim.keys("ix")
    assert neovim.until_ghost() == "abc"
    assert neovim.lua("return #vim.api.nvim_list_bufs()") == before


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
@pytest.mark.parametrize("name", ["file", "write"])
def test_of_two_buffers_without_a_name_the_second_waits_for_one(
    open_scripted: OpenScripted, script: Script, tmp_path: Path, name: str
) -> None:
    """Neovim's client has one URI for both."""
    neovim = open_scripted("")
    script.answer("abc")
    neovim.lua("for _ = 1, 2 do vim.cmd('new | set filetype=python') end")
    until(lambda: len(script.told("textDocument/didOpen")) == 2)
    neovim.keys("isecond<Esc>")
    until(lambda: neovim.text() == "second")
    assert neovim.lua("return require('midfill').statusline()") == "midfill needs a name"
    assert ":file NAME" in neovim.lua("return vim.fn.execute('Midfill')")
    neovim.api.command(f"{name} {tmp_path}/second.py")
    neovim.keys("A")
    assert neovim.until_ghost() == "abc"
    neovim.keys("<Esc>")
    neovim.api.command("wincmd j")
    neovim.keys("ifirst")
    assert neovim.until_ghost() == "abc"
    texts = {each["textDocument"]["uri"]: each["textDocument"]["text"] for each in script.told("textDocument/didOpen")[1:]}
    assert texts == {"file://": "\n", f"file://{tmp_path}/second.py": "second\n"}
    changed = [each for each in script.told("textDocument/didChange") if each["textDocument"]["uri"] == "file://"]
    assert "".join(change["text"] for each in changed for change in each["contentChanges"]) == "first"


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


@on_both
def test_the_settings_arrive(open_neovim: OpenNeovim, script: Script) -> None:
    options = script.options.removesuffix("}") + ", settings = { maxTokens = 7, disabledLanguages = { 'c' } } }"
    neovim = open_neovim("", options=options)
    (started,) = until(lambda: script.told("initialize"))
    assert started["initializationOptions"] == {"maxTokens": 7, "disabledLanguages": ["c"]}
    assert started["capabilities"]["experimental"] == {"midfill": True}
    assert "inlineCompletion" in started["capabilities"]["textDocument"]
    until(lambda: script.told("initialized"))
    neovim.lua("require('midfill').configure({ automatic = false })")
    neovim.lua("require('midfill').configure({ maxTokens = 8 })")
    changed = until(lambda: script.told("workspace/didChangeConfiguration")[1:])
    now = {"maxTokens": 8, "automatic": False, "disabledLanguages": ["c"]}
    assert changed == [{"settings": {"midfill": now}}]  # the server lays it over the first ones
    neovim.lua(f"require('midfill').setup({options})")
    again = until(lambda: script.told("initialize")[1:])
    assert again[0]["initializationOptions"] == {"maxTokens": 7, "disabledLanguages": ["c"]}


@on_both
def test_the_server_of_another_project_has_the_changed_settings(
    open_scripted: OpenScripted, script: Script, tmp_path: Path
) -> None:
    neovim = open_scripted("", options="{ settings = { maxTokens = 7 } }")
    neovim.lua("require('midfill').configure({ maxTokens = 8 })")
    (tmp_path / "other/.git").mkdir(parents=True)
    neovim.api.command(f"edit {tmp_path}/other/demo.py")
    (_, other) = until(lambda: script.told("initialize")[1:] and script.told("initialize"))
    assert other["initializationOptions"] == {"maxTokens": 8}


@on_both
def test_a_server_that_is_starting_gets_what_is_configured_then(
    open_scripted: OpenScripted, script: Script, tmp_path: Path
) -> None:
    neovim = open_scripted("")
    (tmp_path / "other/.git").mkdir(parents=True)
    (tmp_path / "other/demo.py").write_text("")
    starting = "vim.wait(9000, function() return #vim.lsp.get_clients({ _uninitialized = true }) == 2 end, 1)"
    neovim.lua(f"vim.cmd.edit(...) {starting} require('midfill').configure({{ maxTokens = 8 }})", f"{tmp_path}/other/demo.py")
    until(lambda: len(script.told("textDocument/didOpen")) == 2)
    assert script.told("initialize")[1]["initializationOptions"] == {}
    assert script.told("workspace/didChangeConfiguration") == [{"settings": {"midfill": {"maxTokens": 8}}}] * 2


@on_both
@pytest.mark.parametrize("pause", ["", "vim.wait(100)"])
def test_another_command_replaces_a_server_that_has_not_started_yet(open_neovim: OpenNeovim, script: Script, pause: str) -> None:
    neovim = open_neovim("", options="{ cmd = { 'no-such-midfill' } }")
    neovim.lua(f"require('midfill').setup({{ cmd = {{ 'sleep', '3600' }} }}) {pause} {script.setup()}")
    script.answer("abc")
    neovim.keys("ix")
    assert neovim.until_ghost() == "abc"
    assert neovim.lua("return #vim.lsp.get_clients({ _uninitialized = true })") == 1


def test_a_change_looks_at_no_other_buffer(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("")
    for number in range(5):
        neovim.api.command(f"edit other-{number}.py")
    until(lambda: len(script.told("textDocument/didOpen")) == 6)
    neovim.lua("""
      asked, uri_from_bufnr = {}, vim.uri_from_bufnr
      vim.uri_from_bufnr = function(buf) asked[buf] = true return uri_from_bufnr(buf) end
    """)
    neovim.keys("ix")
    until(lambda: script.told("textDocument/didChange"))
    assert neovim.lua("return vim.tbl_keys(asked)") == [neovim.api.current.buffer.number]


@on_both
@pytest.mark.parametrize("name", ["file {}", "enew | set filetype=python | file {}", "enew | set filetype=python | write {}"])
def test_a_document_goes_with_its_buffers_name(open_scripted: OpenScripted, script: Script, tmp_path: Path, name: str) -> None:
    neovim = open_scripted("")
    first = "enew" not in name
    for command in name.format(tmp_path / "other.py").split(" | "):
        neovim.api.command(command)
        neovim.lua("vim.wait(100)")  # until the server has the buffer
    script.answer("abc")
    neovim.keys("ix")
    assert neovim.until_ghost() == "abc"

    def names(method: str) -> list[str]:
        return [Path(each["textDocument"]["uri"].removeprefix("file://")).name for each in script.told(method)]

    assert names("textDocument/didOpen") == (["demo.py", "other.py"] if first else ["demo.py", "", "other.py"])
    assert names("textDocument/didClose") == (["demo.py"] if first else [""])
    assert set(names("textDocument/didChange")) == {"other.py"}


def test_a_document_stays_where_a_name_is_taken(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("")
    neovim.lua("vim.fn.bufadd('taken.py') pcall(vim.cmd.file, 'taken.py')")
    script.answer("abc")
    neovim.keys("ix")
    assert neovim.until_ghost() == "abc"


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


@on_both
def test_a_server_that_keeps_dying_is_left_alone(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim("", options="{ cmd = { 'sh', '-c', 'echo no such luck >&2; exit 3' } }")
    until(lambda: "keeps exiting, last with status 3. See :Midfill log" in neovim.messages())
    neovim.api.command("Midfill log")
    assert "no such luck" in neovim.text()


def test_a_server_that_neovim_was_told_to_stop_stays_away(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("")
    neovim.lua("for _, client in ipairs(vim.lsp.get_clients()) do vim.lsp.stop_client(client.id) end")
    until(lambda: neovim.lua("return #vim.lsp.get_clients()") == 0)
    time.sleep(1)
    assert neovim.lua("return #vim.lsp.get_clients()") == 0
    assert len(script.told("initialize")) == 1


@on_both
def test_a_command_that_is_not_there_is_reported(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim("", options="{ cmd = { 'no-such-midfill' } }")
    assert 'midfill: "no-such-midfill" is not executable. Set the path' in neovim.messages()
    assert neovim.lua("return require('midfill').statusline()") == "midfill not found"
    assert "no language server in this buffer" in neovim.api.command_output("Midfill status")
    neovim.api.command("checkhealth midfill")
    assert '"no-such-midfill" is not executable' in neovim.text()
    neovim.keys("ix<M-l><Esc>")
    until(lambda: neovim.mode() == "n")


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


@pytest.mark.parametrize(
    ("text", "sent", "then"),
    [
        ("a\rb\nc\r\nd\n", "a b\nc \nd\n", ("jA", "c\r!x")),
        ("a\rb\r\r\nc\r\nd\r\n", "a b \r\nc\r\nd\r\n", ("jA", "c!x")),
        ("a\rb\rc\r", "a\rb\rc\r", ("jA", "b!x")),
    ],
    ids=["unix", "dos", "mac"],
)
def test_a_carriage_return_within_a_line_is_no_line_end(
    open_scripted: OpenScripted, script: Script, text: str, sent: str, then: tuple[str, str]
) -> None:
    """LSP counts it as one: the places of all lines below would be off."""
    before = "vim.o.fileformats = 'unix,dos,mac'"
    neovim = open_scripted(text, before=before)
    if text.count("\n") == 0:
        neovim.api.command("edit ++ff=mac")
        until(lambda: len(script.told("textDocument/didOpen")) == 2)
    assert script.told("textDocument/didOpen")[-1]["textDocument"]["text"] == sent
    keys, line = then
    script.answer("x")
    neovim.keys(f"{keys}!")
    neovim.until_ghost()
    asked = script.told("textDocument/inlineCompletion")[-1]["position"]
    assert asked == {"line": 1, "character": len(line) - 1}
    neovim.keys("<M-l><Esc>")
    until(lambda: neovim.api.current.line == line)


@on_both
def test_bytes_that_are_no_text_move_nothing(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("a\n")
    raw = "'\\xff\\xfeb\\xe4 \\xc3\\xa4\\xf0\\x9f\\x98\\x8b\\x9f!'"
    neovim.lua(f"vim.api.nvim_buf_set_lines(0, 0, -1, false, {{ {raw} }})")
    script.answer("abc")
    neovim.keys("Ax")
    neovim.until_ghost()
    told = [change["text"] for each in script.told("textDocument/didChange") for change in each["contentChanges"]]
    assert any("??b? ä😋?!" in text for text in told)
    place = script.told("textDocument/inlineCompletion")[-1]["position"]["character"]
    assert place in (13, len("??b? ä😋?!x") + 1)  # in UTF-8, or in UTF-16
    neovim.keys("<M-l><Esc>")
    until(lambda: neovim.mode() == "n")
    assert neovim.lua(f"return vim.api.nvim_get_current_line() == {raw} .. 'xabc'")


IDS = {"sh": "shellscript", "cs": "csharp", "yaml.ansible": "yaml", "javascript.jsx": "javascriptreact", "css": "css"}


def test_the_server_hears_of_languages_by_their_ids(open_scripted: OpenScripted, script: Script) -> None:
    named = ", ".join(f"'{filetype}'" for filetype in IDS)
    neovim = open_scripted("", options=f"{{ settings = {{ disabledLanguages = {{ {named} }} }} }}")
    assert script.told("initialize")[0]["initializationOptions"] == {"disabledLanguages": [*IDS.values()]}
    for number, (filetype, language) in enumerate(IDS.items(), start=1):
        neovim.api.command(f"enew | set filetype={filetype}")
        opened = until(lambda number=number: script.told("textDocument/didOpen")[number:])  # type: ignore[misc]
        assert opened[0]["textDocument"]["languageId"] == language
    known = ["python", "javascriptreact", "typescript", "cpp", "shellscript", "csharp", "ruby", "lua", "plaintext"]
    assert neovim.lua("local id = require('midfill.languages').id return vim.tbl_map(id, ...)", known) == known
