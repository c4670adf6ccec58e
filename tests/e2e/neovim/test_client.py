"""The language servers of a real Neovim: started, configured and replaced, and what they have of which buffer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.neovim.conftest import OpenNeovim, OpenScripted, on_both
from tests.e2e.neovim.driver import until
from tests.e2e.neovim.script import Script
from tests.e2e.neovim.test_commands import notify


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
@pytest.mark.parametrize("end", ["bdelete!", "bwipeout!", "file named.py", "write named.py"])
def test_the_next_buffer_without_a_name_gets_the_server_when_the_first_leaves_it(
    open_scripted: OpenScripted, script: Script, tmp_path: Path, end: str
) -> None:
    neovim = open_scripted("")
    neovim.api.command(f"cd {tmp_path}")
    for text in ("first", "second", "third"):
        neovim.api.command(f"new | set filetype=python | call setline(1, '{text}')")
    until(lambda: len(script.told("textDocument/didOpen")) == 2)
    neovim.api.command("2wincmd j")
    neovim.api.command(end)
    until(lambda: any("second" in each["textDocument"]["text"] for each in script.told("textDocument/didOpen")))
    assert not any("third" in each["textDocument"]["text"] for each in script.told("textDocument/didOpen"))


@on_both
def test_help_pages_and_folders_are_no_documents(open_scripted: OpenScripted, script: Script, tmp_path: Path) -> None:
    neovim = open_scripted("")
    said = {}
    for command in (f"edit {tmp_path}", "help"):
        neovim.api.command(command)
        said[neovim.api.current.buffer.options["filetype"]] = " ".join(str(neovim.api.command_output("Midfill")).split())
    neovim.api.command(f"edit {tmp_path}/other.py")
    until(lambda: any("other.py" in each["textDocument"]["uri"] for each in script.told("textDocument/didOpen")))
    assert len(script.told("textDocument/didOpen")) == 2
    where = "midfill: no language server in this buffer: it is no file"
    assert said == {"netrw": f"{where} (a folder).", "help": f"{where} ('buftype' is help)."}


@pytest.mark.parametrize(
    ("given", "root"),
    [
        ("root_dir = [[FOLDER/own]]", "FOLDER/own"),
        ("root_dir = function(_, take) take([[FOLDER/own]]) end", "FOLDER/own"),
        ("root_markers = { [[NAME]] }", "PARENT"),
        ("", "FOLDER"),
    ],
)
def test_the_root_is_that_of_the_users_own_configuration(
    open_scripted: OpenScripted, script: Script, tmp_path: Path, given: str, root: str
) -> None:
    (tmp_path / ".git").mkdir()

    def named(text: str) -> str:
        return text.replace("FOLDER", str(tmp_path)).replace("PARENT", str(tmp_path.parent)).replace("NAME", tmp_path.name)

    neovim = open_scripted("", before=f"vim.lsp.config('midfill', {{ {named(given)} }})")
    neovim.lua("require('midfill.client').restart()")
    started = until(lambda: script.told("initialize")[1:] and script.told("initialize"))
    assert [each["rootUri"] for each in started] == [Path(named(root)).as_uri()] * 2


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
        if "filetype" in command:  # which has a root of its own, and so may have a server that starts
            until(lambda: len(script.told("textDocument/didOpen")) == 2)
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
