"""The snippets of docs/editors.md, with the clone's path put in: in Helix, in Neovim, in any client."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lsprotocol import types

from tests.e2e.conftest import READY_SECONDS
from tests.e2e.neovim.conftest import NEWEST
from tests.e2e.neovim.driver import Program, attached, environment, soon, until
from tests.e2e.neovim.terminal import Terminal, running
from tests.lsp_server.editor import URI, Editor

CODE = """\
class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y


class Circle:
    def __init__(self, x, y):
        self.x = x
"""
AN_ANSWER = 3.0
CLONE = Path(__file__).parents[3]


def snippet(language: str, containing: str) -> str:
    """The block of code on the page that holds the given text."""
    page = (CLONE / "docs/editors.md").read_text(encoding="utf-8").replace("/path/to/midfill", str(CLONE))
    blocks: list[str] = re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (block,) = (block for block in blocks if containing in block)
    return block


@pytest.fixture
def users_environment(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of its own, where no `midfill` is on the path."""
    folders = os.environ["PATH"].split(os.pathsep)
    monkeypatch.setenv("PATH", os.pathsep.join(folder for folder in folders if not Path(folder, "midfill").exists()))
    with environment(tmp_path, runtime):
        yield tmp_path


def test_helix_offers_suggestions_in_its_menu(users_environment: Path, tmux: Path) -> None:
    home, file = users_environment, users_environment / "circle.py"
    file.write_text(CODE, encoding="utf-8")
    (home / "config/helix").mkdir(parents=True)
    (home / "config/helix/languages.toml").write_text(snippet("toml", "midfill"), encoding="utf-8")

    def seen(terminal: Terminal) -> bool:
        return " text" in terminal.screen()  # the kind of entry that a suggestion is

    with running(tmux, home, [str(NEWEST.parents[1] / "lib/hx/hx"), str(file)]) as terminal:
        until(lambda: "NOR" in terminal.screen())
        terminal.type("g", "e", "o")
        deadline = time.monotonic() + READY_SECONDS
        while not seen(terminal) and time.monotonic() < deadline:
            terminal.type("Escape", "u", "o")
            for key in "self.y":
                terminal.type_text(key)
                if soon(lambda: seen(terminal), AN_ANSWER):
                    break
        terminal.type("Tab")
        until(lambda: "midfill" in terminal.screen())
        terminal.type("Enter", "Escape")
        until(lambda: "NOR" in terminal.screen())
        terminal.type_text(":w")
        terminal.type("Enter")
        until(lambda: file.read_text(encoding="utf-8") != CODE)


def test_neovims_plugin_finds_the_command_of_its_clone(users_environment: Path) -> None:
    file = users_environment / "circle.py"
    file.write_text(CODE, encoding="utf-8")
    init = users_environment / "init.lua"
    init.write_text(snippet("lua", "runtimepath"), encoding="utf-8")
    with attached(Program(NEWEST), init, file) as neovim:
        neovim.until_ready()


def test_neovim_needs_no_plugin(users_environment: Path) -> None:
    file = users_environment / "circle.py"
    file.write_text(CODE, encoding="utf-8")
    init = users_environment / "init.lua"
    init.write_text(snippet("lua", "vim.lsp.enable"), encoding="utf-8")
    with attached(Program(NEWEST), init, file) as neovim:
        neovim.keys("Go<C-u>")
        until(lambda: neovim.lua("local c = vim.lsp.get_clients()[1] return c and c.initialized or false"))
        deadline = time.monotonic() + READY_SECONDS
        while not neovim.ghost() and time.monotonic() < deadline:
            neovim.keys("<Esc>cc")
            for key in "self.y =":
                neovim.keys(key)
                if soon(neovim.ghost, AN_ANSWER):
                    break
        ghost, before = neovim.ghost(), neovim.text()
        assert ghost
        neovim.keys("<M-l>")
        until(lambda: neovim.text() == before + ghost)


async def test_any_client_is_answered_in_its_menu(users_environment: Path) -> None:
    given = json.loads(snippet("json", '{\n  "command"'))
    editor = Editor()
    await editor.start_io(*given["command"])
    await editor.start(given["initializationOptions"], inline=False)
    assert editor.server is not None
    assert editor.server.capabilities.completion_provider is not None
    editor.open(CODE)
    items: list[types.CompletionItem] = []
    deadline = time.monotonic() + READY_SECONDS
    for version, line in enumerate(["self.y = ", "self.", "self.x"] * 100, start=2):
        editor.replace_all(version, f"{CODE}        {line}")
        params = types.CompletionParams(types.TextDocumentIdentifier(URI), types.Position(CODE.count("\n"), 8 + len(line)))
        answer = await editor.text_document_completion_async(params)
        assert isinstance(answer, types.CompletionList)
        items = list(answer.items)
        if items or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    assert items[0].detail == "midfill"
    await editor.shutdown_async(None)
    editor.exit(None)
    await editor.stop()
