"""Situations in which nothing is suggested: what :Midfill status and the status line say, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.neovim.conftest import OpenNeovim, OpenScripted, on_both
from tests.e2e.neovim.driver import Neovim, until
from tests.e2e.neovim.script import Script
from tests.e2e.neovim.test_commands import notify
from tests.e2e.scripted_core import TOKEN

ROOT = Path(__file__).parents[3]
READY = {"state": "ready", "context_tokens": 4096, "chars_per_token": 3.0}


class Core:
    """The scripted core in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        self.url = process.stdout.readline().strip()

    def do(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()


@pytest.fixture
def core() -> Iterator[Core]:
    command = [sys.executable, "-m", "tests.e2e.scripted_core"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Core(process)
        process.kill()


def status(neovim: Neovim) -> str:
    """What :Midfill status says, as one line: it is broken between words."""
    return " ".join(str(neovim.api.command_output("Midfill status")).split())


def until_said(neovim: Neovim, *words: str) -> str:
    """Wait for :Midfill status to say all of it."""
    return until(lambda: all(word in status(neovim) for word in words) and status(neovim))


def statusline(neovim: Neovim) -> str:
    return str(neovim.lua("return require('midfill').statusline()"))


@pytest.fixture
def open_with(open_neovim: OpenNeovim, core: Core) -> Callable[..., Neovim]:
    def open_file(text: str = "a\n", name: str = "demo.py", settings: str = "", before: str = "") -> Neovim:
        own = f"core = '{core.url}', coreToken = '{TOKEN}'"
        neovim = open_neovim(text, name=name, options=f"{{ settings = {{ {own}, {settings} }} }}", before=before)
        until(lambda: neovim.status().get("state"))
        return neovim

    return open_file


def test_suggestions_are_switched_off_in_a_buffer_and_everywhere(open_with: Callable[..., Neovim]) -> None:
    neovim = open_with()
    for scope, words in (("buffer", "switched off in this buffer"), ("", "switched off in this editor")):
        neovim.api.command(f"Midfill disable {scope}")
        enable = f"Midfill enable {scope}".strip()
        until_said(neovim, f"no suggestion (off): Suggestions are {words}.", f":{enable}: Switch them on.")
        assert statusline(neovim) == "midfill off"
        neovim.api.command(enable)
        until(lambda: "no suggestion" not in status(neovim))


@on_both
def test_while_the_model_loads_the_percentage_is_shown_and_the_suggestion_follows(
    open_with: Callable[..., Neovim], core: Core
) -> None:
    core.do(status={"state": "loading", "progress": 0.4}, hold=True)
    neovim = open_with()
    neovim.keys("Ab")
    until_said(neovim, "no suggestion (loading 40 %): Loading fake 40 %. Suggestions follow by themselves.")
    assert statusline(neovim) == "midfill loading 40 %"
    core.do(status=READY, hold=False)
    assert neovim.until_ghost() == "x = 1"


def test_the_server_has_the_editor_request_again(open_scripted: OpenScripted, script: Script) -> None:
    script.answer()
    neovim = open_scripted("")
    neovim.keys("iab")
    until(neovim.answered)
    script.answer("later")
    notify(neovim, "midfill/refresh", textDocument=None, invoked=False)
    assert neovim.until_ghost() == "later"


def hint(neovim: Neovim) -> str:
    """What stands behind the line about the reason."""
    namespace = neovim.api.api.create_namespace("midfill.hint")
    marks = neovim.api.current.buffer.api.get_extmarks(namespace, 0, -1, {"details": True})
    return "".join(chunk[0] for mark in marks for chunk in mark[3]["virt_text"]).strip()


def tell(neovim: Neovim, kind: str | None, text: str = "", *, lasts: bool = True) -> None:
    """Have the server tell a reason of the document, or that there is none."""
    reason = {"kind": kind, "text": text, "explanation": "Why.", "actions": [], "lasts": lasts}
    notify(neovim, "midfill/reason", textDocument=None, reason=reason if kind else None)


@on_both
def test_a_reason_that_lasts_is_reported_once_behind_the_line_and_goes_with_it(open_scripted: OpenScripted) -> None:
    neovim = open_scripted("a\n")
    tell(neovim, "excluded", "excluded")
    assert hint(neovim) == ""
    neovim.keys("A")
    until(lambda: hint(neovim) == "midfill excluded: :Midfill status says why")
    tell(neovim, None)
    until(lambda: hint(neovim) == "")
    tell(neovim, "excluded", "excluded")
    tell(neovim, "starting", "starting")  # of another kind
    until(lambda: hint(neovim) == "midfill starting: suggestions follow by themselves")
    tell(neovim, "loading", "loading 40 %")
    until(lambda: hint(neovim) == "midfill loading 40 %: suggestions follow by themselves")
    neovim.keys("<CR>")  # to another line
    until(lambda: neovim.text() == "a\n")
    neovim.lua("vim.wait(100)")
    assert hint(neovim) == "midfill loading 40 %: suggestions follow by themselves"  # until the core is ready
    neovim.keys("<Esc>")
    until(lambda: hint(neovim) == "")
    neovim.keys("i")
    until(lambda: hint(neovim) == "midfill loading 40 %: suggestions follow by themselves")
    tell(neovim, "failed", "failed")
    until(lambda: hint(neovim) == "midfill failed: :Midfill status says why")
    neovim.keys("<Esc>")
    until(lambda: hint(neovim) == "")


def test_what_a_status_line_shows_or_one_request_met_is_not_reported_behind_the_line(
    open_scripted: OpenScripted, script: Script
) -> None:
    neovim = open_scripted("a\n")
    neovim.keys("A")
    tell(neovim, "nothing", "nothing to add", lasts=False)
    tell(neovim, "snoozed", "snoozed until 12:00")
    statusline(neovim)
    tell(neovim, "excluded", "excluded")
    neovim.keys("b")
    until(lambda: script.told("textDocument/inlineCompletion"))
    assert hint(neovim) == ""


@pytest.mark.parametrize(
    ("name", "options", "before", "short", "words"),
    [
        ("notes", "{}", "", "midfill needs a filetype", "it has no 'filetype', with which the server starts."),
        ("a.py", "{ filetypes = { 'lua' } }", "", "", "the option filetypes of setup() does not have python."),
        ("a.py", "{ cmd = { 'false' } }", "", "midfill server exited", "it keeps exiting. :Midfill log has"),
        ("a.py", "{}", "vim.cmd('autocmd BufEnter * set buftype=nofile')", "", "it is no file ('buftype' is nofile)."),
    ],
)
def test_a_buffer_without_a_server_says_why(
    open_neovim: OpenNeovim, name: str, options: str, before: str, short: str, words: str
) -> None:
    neovim = open_neovim("", name=name, options=options, before=before)
    until(lambda: statusline(neovim) == short)
    until(lambda: f"midfill: no language server in this buffer: {words}" in status(neovim))


@on_both
def test_what_was_typed_before_the_server_came_is_answered_without_a_key(open_neovim: OpenNeovim, script: Script) -> None:
    script.answer("later")
    neovim = open_neovim("", options="{ cmd = { 'no-such-midfill' } }")
    neovim.keys("iab")
    until(lambda: neovim.text() == "ab")
    neovim.lua(script.setup())
    assert neovim.until_ghost() == "later"
