from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pygls.exceptions import JsonRpcException

from lsp_server.models import models_of_this_machine
from protocol.errors import MidfillError
from protocol.settings import Settings
from tests.lsp_server.editor import connected_editor


async def list_models(settings: dict[str, Any]) -> Any:
    async with connected_editor() as editor:
        await editor.start({"exitAfterS": 1} | settings)  # a core that it starts outlives the test no longer
        return await editor.execute("midfill.listModels")


def prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> Path:
    """Stands in for the interpreter that lists the models: notes the arguments, and starts no core."""
    arguments = tmp_path / "arguments"
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\n[ "$3" = inference.loading ] || exit 1\necho "$@" > {arguments}\n{program}\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return arguments


async def test_the_models_are_those_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    listed = await models_of_this_machine(Settings())
    assert [model["name"] for model in listed][:2] == ["bundled", "tiny"]


async def test_an_editor_lists_them_with_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = prints(tmp_path, monkeypatch, """echo '[{"name": "ollama:a:b"}]'""")
    assert await list_models({"device": "cpu", "contextTokens": 512}) == [{"name": "ollama:a:b"}]
    given = arguments.read_text().strip()
    chosen = '{"device": "cpu", "dtype": "auto", "weights": "auto", "contextTokens": 512}'
    assert given == f"-P -m inference.loading list {chosen}"


async def test_a_failure_is_told_to_the_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prints(tmp_path, monkeypatch, "echo first >&2; echo 'midfill: no such thing' >&2; exit 2")
    with pytest.raises(JsonRpcException, match="`midfill models` failed: midfill: no such thing"):
        await list_models({})


@pytest.mark.parametrize("output", ["", "{", "no JSON"])
async def test_output_that_is_no_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    prints(tmp_path, monkeypatch, f"echo '{output}'")
    with pytest.raises(MidfillError, match="printed no list"):
        await models_of_this_machine(Settings())


async def test_a_command_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prints(tmp_path, monkeypatch, "exec sleep 1000")
    with pytest.raises(MidfillError, match="no list within"):
        await models_of_this_machine(Settings(), patience_s=0.2)


async def test_the_models_of_another_machine_are_not_listed() -> None:
    with pytest.raises(JsonRpcException, match="on another machine"):
        await list_models({"core": "wss://127.0.0.1:1", "coreToken": "x"})
