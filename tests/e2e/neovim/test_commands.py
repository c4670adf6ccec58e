""":Midfill core, and what the server says of its state: told in full, drawn only where it has changed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.neovim.conftest import OpenNeovim, OpenScripted, on_both
from tests.e2e.neovim.driver import Neovim, until
from tests.e2e.neovim.script import Script

COMMANDS = ["midfill.listCores", "midfill.restartCore", "midfill.stopCore", "midfill.unloadModel"]
CORE = {"model": "bundled", "state": "failed", "detail": "no such device", "summary": "process 512 MB", "pid": 42}
STOPPED = {"model": "tiny", "state": "stopped", "detail": "by Neovim", "summary": "", "pid": None}


def notify(neovim: Neovim, method: str, **params: Any) -> None:
    """Have the server send a notification, by default of the open document, and wait until it has arrived."""
    if params.get("textDocument", ()) is None:
        params["textDocument"] = {"uri": neovim.lua("return vim.uri_from_bufnr(0)")}
    neovim.lua("vim.lsp.buf_request_sync(0, 'test/notify', ..., 60000)", {"method": method, "params": params})


def status(state: str, **more: Any) -> dict[str, Any]:
    return {"state": state, "message": "", "model": "bundled", "device": "cpu", "progress": None} | more


@on_both
def test_the_core_is_controlled(open_scripted: OpenScripted, script: Script) -> None:
    script.answer(commands=COMMANDS)
    neovim = open_scripted("")
    until(lambda: script.told("initialized"))
    outcomes = {"stop": "stopped the core, for every editor", "unload": "unloaded the model"}
    for action, said in outcomes.items():
        neovim.api.command(f"Midfill core {action}")
        until(lambda said=said: said in neovim.messages())  # type: ignore[misc]
    names = [params["command"] for params in script.told("workspace/executeCommand")]
    assert names == ["midfill.stopCore", "midfill.unloadModel"]
    script.answer(commands=COMMANDS, result=[CORE, STOPPED])
    neovim.api.command("Midfill core list")
    told = "bundled: failed (no such device), process 42\n  process 512 MB\ntiny: stopped (by Neovim)"
    until(lambda: told in neovim.messages())


def test_a_restart_replaces_the_core_and_then_the_language_server(open_scripted: OpenScripted, script: Script) -> None:
    script.answer(commands=COMMANDS)
    neovim = open_scripted("")
    until(lambda: script.told("initialized"))
    assert neovim.api.command_output("Midfill restart") == "midfill: starting again"
    until(lambda: len(script.told("initialize")) == 2)
    (command,) = script.told("workspace/executeCommand")
    assert command["command"] == "midfill.restartCore"


def test_a_restart_does_not_wait_for_a_core_that_hangs(open_scripted: OpenScripted, script: Script) -> None:
    script.answer(commands=COMMANDS, hang=True)
    neovim = open_scripted("")
    until(lambda: script.told("initialized"))
    neovim.api.command("Midfill restart")
    until(lambda: script.told("workspace/executeCommand"))
    script.answer(commands=COMMANDS)
    until(lambda: len(script.told("initialize")) == 2)


@pytest.mark.parametrize("action", ["stop", "unload", "list"])
def test_a_command_that_fails_is_reported_once_and_not_as_done(open_scripted: OpenScripted, script: Script, action: str) -> None:
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
    assert "midfill: no language server in this buffer: " in neovim.api.command_output("Midfill suggest")
    neovim.keys(":Midfill core<CR>")
    until(lambda: ":Midfill core needs one of list, stop, unload" in neovim.messages())


def test_the_command_alone_is_its_status_and_a_wrong_one_gets_the_choices(open_scripted: OpenScripted) -> None:
    neovim = open_scripted("")
    assert neovim.api.command_output("Midfill") == neovim.api.command_output("Midfill status")
    neovim.keys(":Midfill stat<CR>:Midfill snooze 1.5<CR>")
    until(lambda: "unknown command :Midfill stat; choose one of act, cancel, core, " in neovim.messages())
    choices = "choose one of 5, 15, 60, until-restart, or another number of minutes"
    until(lambda: f":Midfill snooze 1.5; {choices}" in neovim.messages())


def test_a_snooze_takes_any_number_of_minutes(open_scripted: OpenScripted, script: Script) -> None:
    script.answer(commands=["midfill.snooze"])
    neovim = open_scripted("")
    until(lambda: script.told("midfill/didSwitch"))
    for minutes in ("30", "until-restart"):
        neovim.api.command(f"Midfill snooze {minutes}")
    until(lambda: [each["arguments"] for each in script.told("workspace/executeCommand")] == [[30], [0]])


def test_the_switches_and_a_restart_say_what_they_did(open_scripted: OpenScripted) -> None:
    neovim = open_scripted("")
    answers = {
        "disable buffer": "off in this buffer (on: :Midfill enable buffer)",
        "disable": "off in this editor (on: :Midfill enable)",
        "enable buffer": "still off in this editor (on: :Midfill enable)",
        "enable": "on",
        "restart": "starting again",
    }
    for command, said in answers.items():
        assert neovim.api.command_output(f"Midfill {command}") == f"midfill: {said}"


def test_an_answer_is_broken_between_words(open_scripted: OpenScripted) -> None:
    neovim = open_scripted("")
    explained = "The model is reading the prompt, which has so many tokens that this sentence takes more than a line."
    why = reason("reading", "reading", explained)
    notify(neovim, "midfill/reason", textDocument=None, reason=why)
    said = neovim.api.command_output("Midfill")
    assert explained in " ".join(said.split())
    assert max(map(len, said.splitlines())) < 80


def test_statistics_need_the_midfill_command(open_neovim: OpenNeovim) -> None:
    neovim = open_neovim("", options="{ cmd = { 'no-such-midfill', 'lsp' } }")
    neovim.keys(":Midfill stats<CR>")
    until(lambda: "ENOENT" in neovim.messages())
    assert neovim.text() == ""


def reason(kind: str, text: str, explanation: str, *, lasts: bool = True, **action: Any) -> dict[str, Any]:
    actions = [action] if action else []
    return {"kind": kind, "text": text, "explanation": explanation, "actions": actions, "lasts": lasts}


@on_both
def test_reasons_are_reported_in_the_servers_words(open_scripted: OpenScripted, script: Script) -> None:
    script.answer(commands=["midfill.suggestHere", "midfill.snooze"])
    neovim = open_scripted("")
    until(lambda: script.told("midfill/didSwitch"))
    statusline = "return require('midfill').statusline()"
    failed = reason("failed", "failed", "The core failed: no device 'banana'.")
    notify(neovim, "midfill/status", **status("failed", reason=failed))
    assert neovim.lua(statusline) == "midfill failed"
    assert "no suggestion (failed): The core failed: no device 'banana'." in neovim.api.command_output("Midfill status")
    notify(neovim, "midfill/status", **status("ready", reason=None))
    here = {"title": "Suggest here", "command": "midfill.suggestHere", "arguments": ["file:///x"]}
    notify(neovim, "midfill/reason", textDocument=None, reason=reason("excluded", "excluded", "By *.py.", **here))
    assert neovim.lua(statusline) == "midfill excluded"
    told = neovim.api.command_output("Midfill status")
    assert "no suggestion (excluded): By *.py." in told
    assert ":Midfill act: Suggest here" in told
    neovim.api.command("Midfill act")
    neovim.api.command("Midfill snooze 15")
    sent = [{"command": "midfill.suggestHere", "arguments": ["file:///x"]}]
    until(lambda: script.told("workspace/executeCommand") == [*sent, {"command": "midfill.snooze", "arguments": [15]}])
    notify(neovim, "midfill/reason", textDocument=None, reason=reason("unlikely", "held back", "12 %.", lasts=False))
    assert neovim.lua(statusline) == "midfill"
    assert "no suggestion (held back): 12 %." in neovim.api.command_output("Midfill status")
    notify(neovim, "midfill/reason", textDocument=None, reason=None)
    assert "no suggestion" not in neovim.api.command_output("Midfill status")


def test_status_lines_are_drawn_again_only_where_they_change(open_scripted: OpenScripted) -> None:
    count = "vim.g.changes = 0 vim.cmd('autocmd User MidfillStatus let g:changes += 1')"
    neovim = open_scripted("", before=count)
    before = neovim.lua("return vim.g.changes")
    for state, milliseconds in [("ready", 12.2), ("ready", 14.0), ("stopped", 14.0)]:
        usage = {"recomputed_tokens": 1, "prompt_tokens": 900}
        notify(neovim, "midfill/status", **status(state))
        notify(neovim, "midfill/usage", textDocument=None, isPrefetch=False, cacheOutcome="hit", ms=milliseconds, usage=usage)
        notify(neovim, "midfill/reason", textDocument=None, reason=None)
        assert neovim.lua("return require('midfill').statusline()") == "midfill"  # no number that changes with each key
    assert neovim.lua("return vim.g.changes") - before == 2
    assert "last prompt: 14 ms, 1 of 900 tokens computed" in neovim.api.command_output("Midfill status")


MODEL = {"name": "ollama:qwen2.5-coder:1.5b", "source": "Ollama", "family": "qwen2", "sizeBytes": 986_000_000}
CAN_RUN = MODEL | {"quantization": "Q4_K_M", "problem": ""}
CANNOT = CAN_RUN | {"name": "ollama:chat:7b", "problem": "it has no markers"}
REMOTE = {"name": "a/coder-GGUF", "source": "Hugging Face hub", "family": "", "sizeBytes": 1_660_000_000} | {
    "quantization": "",
    "problem": "",
    "here": False,
    "licence": "apache-2.0",
}
LIST_MODELS = ["midfill.listModels", "midfill.downloadModel"]


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


def reported_models(script: Script) -> list[Any]:
    changes = script.told("workspace/didChangeConfiguration")
    return [params["settings"]["midfill"]["model"] for params in changes if "midfill" in params["settings"]]


@on_both
def test_a_model_of_this_machine_is_chosen(open_scripted: OpenScripted, script: Script) -> None:
    script.answer(commands=LIST_MODELS, result=[CAN_RUN, CANNOT, REMOTE])
    neovim = open_scripted("")
    until(lambda: script.told("initialized"))
    select(neovim, 1)
    neovim.api.command("Midfill model")
    until(lambda: reported_models(script) == ["ollama:qwen2.5-coder:1.5b"])
    assert neovim.lua("return vim.g.offered") == [
        "ollama:qwen2.5-coder:1.5b (Ollama, qwen2, 0.99 GB, Q4_K_M)",
        "ollama:chat:7b (Ollama, qwen2, 0.99 GB, Q4_K_M) -- cannot run: it has no markers",
        "a/coder-GGUF (to download, 1.66 GB, apache-2.0)",
        "Another: a path, or a name on the Hugging Face hub (OWNER/NAME[:Q4_K_M])",
    ]
    assert "the model is now ollama:qwen2.5-coder:1.5b, until Neovim ends" in neovim.messages()


def test_a_model_that_cannot_run_is_not_taken(open_scripted: OpenScripted, script: Script) -> None:
    script.answer(commands=LIST_MODELS, result=[CAN_RUN, CANNOT])
    neovim = open_scripted("")
    until(lambda: script.told("initialized"))
    select(neovim, 2)
    neovim.api.command("Midfill model")
    until(lambda: "midfill cannot run ollama:chat:7b: it has no markers" in neovim.messages())
    select(neovim, 3, " ~/models/coder.gguf ")
    neovim.api.command("Midfill model")
    until(lambda: reported_models(script) == ["~/models/coder.gguf"])


def test_a_model_of_the_hub_is_downloaded_before_it_is_taken(open_scripted: OpenScripted, script: Script) -> None:
    def answer(download: dict[str, Any]) -> None:
        script.answer(commands=LIST_MODELS, results={"midfill.listModels": [REMOTE], "midfill.downloadModel": download})

    answer({"choices": [{"name": "a/coder-GGUF:Q8_0", "sizeBytes": 1_660_000_000}]})
    neovim = open_scripted("")
    until(lambda: script.told("initialized"))
    neovim.lua("vim.ui.select = function(items, options, done) vim.g.offered = options.format_item(items[1]) end")
    neovim.lua("require('midfill.models').download('a/coder-GGUF')")
    until(lambda: neovim.lua("return vim.g.offered") == "a/coder-GGUF:Q8_0 (1.66 GB)")
    answer({"cancelled": True})
    select(neovim, 1)
    neovim.api.command("Midfill model")
    until(lambda: "stopped; the next download of a/coder-GGUF goes on from there" in neovim.messages())
    assert reported_models(script) == []
    answer({"path": "/cache/coder.gguf"})
    neovim.api.command("Midfill model")
    until(lambda: reported_models(script) == ["a/coder-GGUF"])


@on_both
def test_a_download_is_shown_and_cancelled(open_scripted: OpenScripted, script: Script) -> None:
    neovim = open_scripted("")
    until(lambda: script.told("initialized"))
    begin = {"kind": "begin", "title": "midfill: downloading a/b", "cancellable": True}
    notify(neovim, "$/progress", token="7", value=begin)
    notify(neovim, "$/progress", token="7", value={"kind": "report", "message": "1 MB of 2 MB", "percentage": 50})
    neovim.api.command("Midfill cancel")
    until(lambda: script.told("window/workDoneProgress/cancel") == [{"token": "7"}])
    notify(neovim, "$/progress", token="7", value={"kind": "end"})
    neovim.api.command("Midfill cancel")
    until(lambda: "midfill: nothing is being downloaded" in neovim.messages())
    neovim.api.command("Midfill status")
    assert len(script.told("window/workDoneProgress/cancel")) == 1
