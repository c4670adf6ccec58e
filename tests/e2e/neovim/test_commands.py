""":Midfill core, and what the server says of its state: told in full, drawn only where it has changed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.neovim.conftest import DEFAULTS, OpenNeovim, OpenScripted
from tests.e2e.neovim.driver import Neovim, until
from tests.e2e.neovim.script import Script

# None of it depends on what draws ghost text.
pytestmark = pytest.mark.parametrize("program", DEFAULTS, ids=str)

COMMANDS = ["midfill.listCores", "midfill.restartCore", "midfill.stopCore", "midfill.unloadModel"]
CORE = {"model": "bundled", "state": "failed", "detail": "no such device", "memoryBytes": 512e6, "pid": 42}


def notify(neovim: Neovim, method: str, **params: Any) -> None:
    """Have the server send a notification, by default of the open document, and wait until it has arrived."""
    if params.get("textDocument", ()) is None:
        params["textDocument"] = {"uri": neovim.lua("return vim.uri_from_bufnr(0)")}
    neovim.lua("vim.lsp.buf_request_sync(0, 'test/notify', ..., 60000)", {"method": method, "params": params})


def status(state: str, **more: Any) -> dict[str, Any]:
    return {"state": state, "message": "", "model": "bundled", "device": "cpu", "progress": None} | more


def test_the_core_is_controlled(open_scripted: OpenScripted, script: Script) -> None:
    script.answer(commands=COMMANDS)
    neovim = open_scripted("")
    until(lambda: script.told("initialized"))
    outcomes = {
        "restart": "restarted the core",
        "stop": "stopped the core, for every editor",
        "unload": "unloaded the model",
    }
    for action, said in outcomes.items():
        neovim.api.command(f"Midfill core {action}")
        until(lambda said=said: said in neovim.messages())  # type: ignore[misc]
    names = [params["command"] for params in script.told("workspace/executeCommand")]
    assert names == ["midfill.restartCore", "midfill.stopCore", "midfill.unloadModel"]
    script.answer(commands=COMMANDS, result=[CORE])
    neovim.api.command("Midfill core list")
    until(lambda: "bundled: failed (no such device), 512 MB, process 42" in neovim.messages())


@pytest.mark.parametrize("action", ["restart", "stop", "unload", "list"])
def test_a_command_that_fails_is_told_once_and_not_as_done(
    open_scripted: OpenScripted, script: Script, action: str
) -> None:
    script.answer(commands=COMMANDS, problem="the core does not answer")
    neovim = open_scripted("")
    until(lambda: script.told("initialized"))
    neovim.api.command(f"Midfill core {action}")
    until(lambda: "the core does not answer" in neovim.messages())
    assert neovim.messages().strip().splitlines() == ["midfill: the core does not answer"]


def test_a_server_without_the_command_is_said_to_lack_it(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("")
    until(lambda: script.told("initialized"))
    neovim.keys(":Midfill core stop<CR>")
    until(lambda: "the language server has no command midfill.stopCore" in neovim.messages())
    assert script.told("workspace/executeCommand") == []


def test_without_a_server_or_an_action_nothing_is_controlled(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim("", options="{ cmd = { 'no-such-midfill' } }")
    neovim.keys(":Midfill core stop<CR>")
    until(lambda: "no language server is running" in neovim.messages())
    neovim.keys(":Midfill core<CR>")
    until(lambda: ":Midfill core needs one of list, restart, stop, unload" in neovim.messages())


def test_reasons_are_told_in_full(open_scripted: OpenScripted) -> None:
    neovim = open_scripted("")
    statusline = "return require('midfill').statusline()"
    notify(neovim, "midfill/status", **status("failed", message="no device 'banana'; known are cpu, cuda"))
    assert neovim.lua(statusline) == "midfill failed"
    assert "no device 'banana'; known are cpu, cuda" in neovim.api.command_output("Midfill status")
    notify(neovim, "midfill/status", **status("loading", progress=0.4))
    assert neovim.lua(statusline) == "midfill loading 40 %"
    notify(neovim, "midfill/status", **status("ready"))
    notify(neovim, "midfill/excluded", textDocument=None, reason=".gitignore, line 3: *.py")
    assert neovim.lua(statusline) == "midfill excluded"
    told = neovim.api.command_output("Midfill status")
    assert "no suggestions in this buffer: .gitignore, line 3: *.py" in told
    # What the server says of the next document replaces this.
    notify(neovim, "midfill/excluded", textDocument={"uri": "file:///other.py"}, reason=None)
    assert neovim.lua(statusline) == "midfill"


def test_status_lines_are_drawn_again_only_where_they_change(open_scripted: OpenScripted) -> None:
    count = "vim.g.changes = 0 vim.cmd('autocmd User MidfillStatus let g:changes += 1')"
    neovim = open_scripted("", before=count)
    cost = {"textDocument": None, "ahead": False, "heat": "hot", "usage": {"recomputed_tokens": 2}}
    before = neovim.lua("return vim.g.changes")
    for state, milliseconds in [("ready", 12.2), ("ready", 12.4), ("ready", 11.8), ("ready", 14.0), ("stopped", 14.0)]:
        notify(neovim, "midfill/status", **status(state))
        notify(neovim, "midfill/usage", **cost | {"ms": milliseconds})
        notify(neovim, "midfill/excluded", textDocument=None, reason=None)
    assert neovim.lua("return vim.g.changes") - before == 4  # ready, 12 ms, 14 ms, stopped


MODEL = {"name": "ollama:qwen2.5-coder:1.5b", "source": "Ollama", "family": "qwen2", "sizeBytes": 986_000_000}
CAN_RUN = MODEL | {"quantization": "Q4_K_M", "problem": ""}
CANNOT = CAN_RUN | {"name": "ollama:chat:7b", "problem": "it has no markers"}
LIST_MODELS = ["midfill.listModels"]


def select(neovim: Neovim, index: int, typed: str = "") -> None:
    """Answer vim.ui.select() with an item, from 1 on, and vim.ui.input() with a text; keep what was offered."""
    neovim.lua(
        """
        local index, typed = ...
        vim.ui.select = function(items, options, done)
          vim.g.offered = vim.tbl_map(options.format_item, items)
          done(items[index])
        end
        vim.ui.input = function(_, done) done(typed) end
        """,
        index,
        typed,
    )


def told_models(script: Script) -> list[Any]:
    changes = script.told("workspace/didChangeConfiguration")
    return [params["settings"]["midfill"]["model"] for params in changes if "midfill" in params["settings"]]


def test_a_model_of_this_machine_is_chosen(open_scripted: OpenScripted, script: Script) -> None:
    script.answer(commands=LIST_MODELS, result=[CAN_RUN, CANNOT])
    neovim = open_scripted("")
    until(lambda: script.told("initialized"))
    select(neovim, 1)
    neovim.api.command("Midfill model")
    until(lambda: told_models(script) == ["ollama:qwen2.5-coder:1.5b"])
    assert neovim.lua("return vim.g.offered") == [
        "ollama:qwen2.5-coder:1.5b (Ollama, qwen2, 0.99 GB, Q4_K_M)",
        "ollama:chat:7b (Ollama, qwen2, 0.99 GB, Q4_K_M) -- cannot run: it has no markers",
        "Another: a path, or a name on the Hugging Face hub",
    ]
    assert "the model is now ollama:qwen2.5-coder:1.5b, until Neovim ends" in neovim.messages()


def test_a_model_that_cannot_run_is_not_taken(open_scripted: OpenScripted, script: Script) -> None:
    script.answer(commands=LIST_MODELS, result=[CAN_RUN, CANNOT])
    neovim = open_scripted("")
    until(lambda: script.told("initialized"))
    select(neovim, 2)
    neovim.api.command("Midfill model")
    until(lambda: "midfill cannot run ollama:chat:7b: it has no markers" in neovim.messages())
    select(neovim, 3, " Qwen/Qwen2.5-Coder-1.5B ")
    neovim.api.command("Midfill model")
    until(lambda: told_models(script) == ["Qwen/Qwen2.5-Coder-1.5B"])
