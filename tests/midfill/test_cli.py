"""The command line: how options reach what they are for, and how errors end it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from midfill.__main__ import main
from midfill.commands import app
from protocol.errors import BadSettings
from protocol.settings import CORE_SETTINGS, option_name


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, runtime: Path) -> list[Any]:
    """What `midfill core` would have served."""
    served: list[Any] = []
    monkeypatch.setattr("inference.server.starting.serve", lambda options, on_published: not served.append(options))
    return served


def test_a_core_whose_model_thread_still_works_ends_without_python_s_way_out(
    served: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    CliRunner().invoke(app, ["core"])
    assert codes == []
    monkeypatch.setattr("inference.server.starting.serve", lambda options, on_published: False)
    CliRunner().invoke(app, ["core"])
    assert codes == [0]


def test_a_core_is_told_what_its_options_say(served: list[Any]) -> None:
    options = ["--store-mb", "7", "--disk-mb", "0", "--unload-after-s", "0", "--host", "0.0.0.0", "--port", "80"]
    options += ["--weights", "int8", "--threads", "3", "--slots", "16"]
    assert CliRunner().invoke(app, ["core", *options, "--allow-origin", "http://a"]).exit_code == 0
    (found,) = served
    assert (found.host, found.port, found.allowed_origins) == ("0.0.0.0", 80, ("http://a",))
    assert (found.unload_after_s, found.exit_after_s) == (None, 1800)
    assert (found.engine.store_bytes, found.engine.cache_folder) == (7 * 2**20, None)
    assert (found.engine.weights, found.engine.threads, found.engine.slots) == ("int8", 3, 16)


def test_a_core_calls_a_folder_as_language_servers_do(
    served: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(app, ["core", "--model", "./model"])
    assert served[0].engine.model == str(tmp_path / "model")


def test_every_setting_of_a_core_is_an_option_of_its_command() -> None:
    shown = CliRunner().invoke(app, ["core", "--help"], env={"COLUMNS": "200"}).stdout
    assert [name for name in CORE_SETTINGS if option_name(name) not in shown] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["core", "--model", "{empty}"], "midfill: {empty} is not a model folder: it has no config.json"),
        (["core", "--model", "no-such"], "midfill: no model 'no-such': it is neither"),
        (
            ["lsp", "--tcp", "127.0.0.1:9257"],
            "midfill: --tcp 127.0.0.1:9257: the language server speaks over stdio alone",
        ),
        (["lsp", "--max-tokens", "0"], "midfill: --max-tokens = 0: must be at least 1"),
        (["core", "--log-file", "{empty}/no/core.log"], "midfill: {empty}/no/core.log cannot be written: No such file"),
        (["demo", "--svg", "{empty}/no/demo.svg"], "midfill: {empty}/no/demo.svg cannot be written: No such file"),
        (["stats", "--html", "{empty}/no/page.html"], "midfill: {empty}/no/page.html cannot be written: No such file"),
        (["replay", "{trace}", "--dry", "--json", "{empty}"], "midfill: {empty} cannot be written: Is a directory"),
        (["replay", "{trace}", "--dry"], "midfill: {trace} is not a trace: it has no list `txns`"),
        (["complete", "a.py"], "midfill: a.py: expected FILE:LINE:COL"),
    ],
)
def test_bad_input_ends_a_command_with_one_line_and_status_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    runtime: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    empty, trace = tmp_path / "empty", tmp_path / "session.json"
    empty.mkdir()
    trace.write_text("{}")
    given = [argument.format(empty=empty, trace=trace) for argument in arguments]
    monkeypatch.setattr(sys, "argv", ["midfill", *given])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(message.format(empty=empty, trace=trace))


@pytest.mark.parametrize("option", ["--exact", "--no-exact"])
def test_an_option_that_is_no_longer_one_is_refused_by_name(served: list[Any], option: str) -> None:
    result = CliRunner().invoke(app, ["core", option])
    assert isinstance(result.exception, BadSettings)
    assert str(result.exception).startswith("--exact is no longer a setting: the CPU kernel gives the same bits")
    assert served == []
