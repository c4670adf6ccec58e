"""`midfill complete`: places in files, and suggestions for them."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import get_args
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from midfill.commands import app
from midfill.complete import FilePosition, PromptPart, Result, explanation
from midfill.complete import complete as complete_place
from midfill.core_to_ask import Waiting
from protocol.errors import BadInput, BadModel, CoreUnavailable, MidfillError, Unauthorized
from protocol.messages import PROTOCOL_VERSION, CoreStatus
from protocol.rendezvous import CoreAddress, SettingValue, address_file, hold, read_or_make_token, write_address
from protocol.settings import ContextSource, Settings
from tests.lsp_server.fake_core import FakeCore


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "sample.py"
    path.write_bytes(b"\xef\xbb\xbfdef area(width, height):\r\n    return \r\n\r\nprint(area(2, 3))\r\n")
    return path


async def complete(settings: Settings, place: FilePosition) -> Result:
    """The suggestion of a running core, or of an engine in this process."""
    return await complete_place(settings, place, Waiting(), may_start=False)


def test_place() -> None:
    assert FilePosition.parse("a.py:3:14") == FilePosition(Path("a.py"), 3, 14)
    assert FilePosition.parse("C:\\a b.py:3:14") == FilePosition(Path("C:\\a b.py"), 3, 14)


@pytest.mark.parametrize("text", ["a.py", "a.py:3", "a.py:0:1", "a.py:1:0", "a.py:x:1", "a.py:1:-1", ":1", ""])
def test_not_a_place(text: str) -> None:
    with pytest.raises(BadInput, match="expected FILE:LINE:COL"):
        FilePosition.parse(text)


async def test_a_suggestion_in_this_process(source: Path, tiny_model: str, runtime: Path) -> None:
    settings = Settings(model=tiny_model, max_tokens=8)
    result = await complete(settings, FilePosition(source, 2, 12))
    assert result.text
    assert result.usage is not None
    assert 8 < result.usage.generated_tokens <= 3 * 2 * 8  # the best of three texts, as on request in an editor
    again = await complete(settings, FilePosition(source, 2, 12))
    assert again.text == result.text


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("sample.py:9:1", "has no line 9: valid lines: 1 to 5"),
        ("sample.py:2:13", "has no column 13: valid columns: 1 to 12"),
        ("sample.py:5:2", "valid columns: 1 to 1"),
        ("binary.py:1:1", r"not UTF-8 text .* at byte 4"),
        ("missing.py:1:1", "No such file"),
        (":1:1", "directory"),
        (
            ".env:1:5",
            r"/\.env: This file gets no suggestions, and its text enters no prompt: \.env in the built-in list of "
            r"secrets\.$",
        ),
    ],
)
async def test_no_place_for_a_suggestion(source: Path, runtime: Path, place: str, message: str) -> None:
    source.with_name("binary.py").write_bytes(b"x = \xff\xfe")
    source.with_name(".env").write_text("KEY=1\n")
    with pytest.raises(BadInput, match=message):
        await complete(Settings(), FilePosition.parse(f"{source.parent}/{place}"))


async def test_a_language_that_is_off_is_the_reason(source: Path, tiny_model: str, runtime: Path) -> None:
    result = await complete(Settings(model=tiny_model, disabled_languages=("python",)), FilePosition(source, 2, 12))
    assert result.reason is not None
    said = "Suggestions are off for python: the setting disabledLanguages has this language."
    assert result.reason.explanation == said


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (Settings(model="{folder}"), BadModel, r"config\.json"),
        (Settings(core="wss://gpu-box:8765"), Unauthorized, "set coreToken"),  # this machine's token goes to no other
        (Settings(core="ws://127.0.0.1:9/ws", core_token="secret"), CoreUnavailable, r"127\.0\.0\.1:9"),
    ],
)
async def test_a_model_or_core_on_another_machine_that_cannot_be_used(
    source: Path, runtime: Path, settings: Settings, error: type[MidfillError], message: str
) -> None:
    settings = replace(settings, model=settings.model.format(folder=source.parent))
    with pytest.raises(error, match=message):
        await complete(settings, FilePosition(source, 2, 12))


async def test_no_core_is_started_for_a_model_that_is_none(
    source: Path, runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BadModel, match="no model 'nosuch'"):
        await complete_place(Settings(model="nosuch"), FilePosition(source, 2, 12), Waiting(), may_start=True)
    assert "starting" not in capsys.readouterr().err
    assert not list(runtime.glob("core-*.log"))


async def test_a_core_that_is_gone_is_done_without(source: Path, tiny_model: str, runtime: Path) -> None:
    write_address(address_file(runtime, tiny_model), CoreAddress("ws://127.0.0.1:9/ws", 1, tiny_model))
    assert (await complete(Settings(model=tiny_model, max_tokens=4), FilePosition(source, 2, 12))).text


def test_the_command(source: Path, tiny_model: str, runtime: Path) -> None:
    options = ["complete", f"{source}:2:12", "--model", tiny_model, "--max-tokens", "4", "--no-start-core"]
    plain = CliRunner().invoke(app, options)
    assert plain.exit_code == 0
    assert plain.stdout.strip()
    found = json.loads(CliRunner().invoke(app, [*options, "--json"]).stdout)
    assert found["suggestion"] == plain.stdout.removesuffix("\n").replace("\n", "\r\n")
    assert found["usage"]["prompt_tokens"] > 0
    assert 0 < found["percent"] < 100


def test_what_an_editor_would_hold_back_is_printed_and_said(source: Path, tiny_model: str, runtime: Path) -> None:
    here = ["--model", tiny_model, "--no-start-core", "--max-tokens", "4"]
    options = ["complete", f"{source}:2:12", *here, "--hold-back-percent"]
    held, shown = (CliRunner().invoke(app, [*options, percent]) for percent in ("100", "0"))
    assert held.stdout == shown.stdout != ""
    assert "editors show this suggestion only on request: the average probability of its tokens is" in held.stderr
    assert shown.stderr.splitlines()[0] == f"midfill: loading {tiny_model} in this process"
    assert "on request" not in shown.stderr
    assert json.loads(CliRunner().invoke(app, [*options, "100", "--json"]).stdout)["held_back"]


@asynccontextmanager
async def fake_core(runtime: Path, model: str, **settings: SettingValue) -> AsyncIterator[FakeCore]:
    """A core for this model that was started with these settings."""
    core, file = FakeCore(read_or_make_token(runtime)), address_file(runtime, model)
    with hold(file):
        async with core.listening():
            write_address(file, CoreAddress(core.url, os.getpid(), model, settings, PROTOCOL_VERSION))
            yield core


async def test_a_running_core_is_asked(source: Path, tiny_model: str, runtime: Path) -> None:
    async with fake_core(runtime, tiny_model, device="cpu", store_mb=7) as core:
        result = await complete(Settings(model=tiny_model, device="cpu"), FilePosition(source, 2, 12))
    assert result.text == "x = 1"
    assert len(core.asked) == 1


async def test_settings_left_at_their_defaults_are_the_core_s_to_choose_and_told(
    source: Path, tiny_model: str, runtime: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with fake_core(runtime, tiny_model, weights="int8") as core:
        await complete(Settings(model=tiny_model), FilePosition(source, 2, 12))
    assert len(core.asked) == 1
    said = "midfill: the running core answers, with --weights = int8 (requested: auto)"
    assert capsys.readouterr().err.splitlines()[0] == said


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("other settings", "the running core has --healing = auto (requested: on); loading the model in this process"),
        ("failed", "the running core has failed (no device 'banana'); loading the model in this process"),
        ("other version", "has another version of midfill"),
    ],
)
async def test_a_core_that_cannot_answer_is_told_and_not_asked(
    source: Path, tiny_model: str, runtime: Path, capsys: pytest.CaptureFixture[str], case: str, said: str
) -> None:
    settings = Settings(model=tiny_model, max_tokens=4, healing="on" if case == "other settings" else "auto")
    async with fake_core(runtime, tiny_model) as core:
        if case == "failed":
            core.status = CoreStatus("failed", tiny_model, detail="no device 'banana'")
        if case == "other version":
            address = CoreAddress(core.url, os.getpid(), tiny_model, protocol_version=1)
            write_address(address_file(runtime, tiny_model), address)
        assert (await complete(settings, FilePosition(source, 2, 12))).usage is not None
    assert core.asked == []
    why, loading, *_ = (line for line in capsys.readouterr().err.splitlines() if line.startswith("midfill:"))
    assert said in why
    assert loading == f"midfill: loading {tiny_model} in this process"


def explained(tmp_path: Path, tiny_model: str, *options: str) -> str:
    others = "".join(f"other_{number} = {number}\n" for number in range(14))
    (tmp_path / "lib.py").write_text("def load(path: str) -> int:\n    return 1\n" + others)
    (tmp_path / "pyproject.toml").touch()  # only a project is indexed
    (tmp_path / "main.py").write_text("from lib import load\n\nprint(load(\n")
    place = f"{tmp_path / 'main.py'}:3:12"
    with patch("midfill.headless.environment._INDEX_S", 120.0):  # the index is built at low priority, beside other tests
        here = ["--model", tiny_model, "--no-start-core", "--max-tokens", "2"]
        result = CliRunner().invoke(app, ["complete", place, "--explain", *here, *options])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_prompt_is_explained(tmp_path: Path, tiny_model: str, runtime: Path) -> None:
    shown = explained(tmp_path, tiny_model)
    assert "lib.py: a definition of a symbol near the cursor (definitions)" in shown
    assert "def load(path: str) -> int:" in shown
    assert "increment: text from the anchor to the cursor" in shown


def test_every_source_has_words() -> None:
    shown = explanation(tuple(PromptPart("snippet", "x", origin, "a") for origin in get_args(ContextSource)))
    assert all(f"({origin})" in shown for origin in get_args(ContextSource))


def test_what_stdout_cannot_encode_is_a_question_mark(tmp_path: Path, tiny_model: str, runtime: Path) -> None:
    (tmp_path / "main.py").write_text("# 😋 ñ\nx = \n", encoding="utf-8")
    place, settings = f"{tmp_path / 'main.py'}:2:5", ["--model", tiny_model, "--max-tokens", "2", "--no-start-core"]
    command = [sys.executable, "-m", "midfill", "complete", place, "--explain", *settings]
    result = subprocess.run(
        command, env={**os.environ, "PYTHONIOENCODING": "latin-1"}, capture_output=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr
    assert b"# ? \xf1" in result.stdout


def test_the_prompt_is_explained_as_json(tmp_path: Path, tiny_model: str, runtime: Path) -> None:
    prompt = json.loads(explained(tmp_path, tiny_model, "--json"))["prompt"]
    assert prompt[0] == {"part": "snippet", "text": "def load(path: str) -> int:\n", "origin": "definitions", "path": "lib.py"}
    assert prompt[-1] == {"part": "increment", "text": "from lib import load\n\nprint(load("}
