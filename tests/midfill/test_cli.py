"""The command line: how options reach what they are for, and how errors end it."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import EntryPoints
from pathlib import Path
from typing import Any, NoReturn

import pytest
from rich.table import Table
from typer.testing import CliRunner

from midfill import commands
from midfill.__main__ import main
from midfill.commands import app
from midfill.console import open_console
from protocol.errors import BadInput
from protocol.settings import CORE_SETTINGS, option_name


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, runtime: Path) -> list[Any]:
    """What `midfill core` would have served."""
    served: list[Any] = []
    monkeypatch.setattr("inference.core.process.serve", lambda options, on_published: not served.append(options))
    return served


def test_a_core_whose_model_thread_still_works_ends_without_python_s_way_out(
    served: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    CliRunner().invoke(app, ["core"])
    assert codes == []
    monkeypatch.setattr("inference.core.process.serve", lambda options, on_published: False)
    CliRunner().invoke(app, ["core"])
    assert codes == [0]


def test_a_core_is_told_what_its_options_say(served: list[Any]) -> None:
    options = ["--store-mb", "7", "--disk-mb", "0", "--unload-after-s", "0", "--host", "0.0.0.0", "--port", "80"]
    options += ["--weights", "int8", "--threads", "3", "--slots", "16"]
    assert CliRunner().invoke(app, ["core", *options, "--allow-origin", "http://a"]).exit_code == 0
    (found,) = served
    assert (found.host, found.port, found.allowed_origins) == ("0.0.0.0", 80, ("http://a",))
    assert (found.unload_after_s, found.exit_after_s) == (None, 1800)
    assert (found.engine.store_bytes, found.engine.cache_bytes) == (7 * 2**20, 0)
    assert (found.engine.weights, found.engine.threads, found.engine.slots) == ("int8", 3, 16)


def test_a_core_calls_a_folder_as_language_servers_do(served: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(app, ["core", "--model", "./model"])
    assert served[0].engine.model == str(tmp_path / "model")


def test_another_distribution_adds_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "further-1.dist-info").mkdir()
    (tmp_path / "further-1.dist-info" / "METADATA").write_text("Name: further\nVersion: 1\n")
    (tmp_path / "further-1.dist-info" / "entry_points.txt").write_text(
        "[midfill.commands]\nfurther = further:command\nbroken = no_such_module:command\ncore = further:command\n"
    )
    (tmp_path / "further.py").write_text(
        "def command(number: int, twice: bool = False) -> None:\n    'Further.'\n    print(number * (1 + twice))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert CliRunner().invoke(app, ["further", "21", "--twice"]).stdout == "42\n"
    assert CliRunner().invoke(app, ["further", "many"]).exit_code == 2
    assert "completion" not in CliRunner().invoke(app, ["further", "--help"]).stdout  # of the shell: that is `midfill`'s option
    assert "Run the inference core" in CliRunner().invoke(app, ["core", "--help"]).stdout  # midfill's own comes first
    refusal = CliRunner().invoke(app, ["broken"]).exception  # and others work
    assert isinstance(refusal, BadInput)
    assert "no_such_module" in str(refusal)
    assert "cannot be loaded" in CliRunner().invoke(app, ["--help"]).stdout
    assert CliRunner().invoke(app, ["no-such-command"]).exit_code == 2


@pytest.mark.parametrize("arguments", [["train", "src", "--output", "run"], ["eval", "--help"]])
def test_without_the_lab_its_commands_name_what_to_install(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = commands.entry_points
    monkeypatch.setattr(commands, "entry_points", lambda **wanted: EntryPoints())
    monkeypatch.setattr(sys, "argv", ["midfill", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"midfill: `midfill {arguments[0]}` is part of the package midfill-lab: run `make setup`")
    assert arguments[0] in found(group="midfill.commands").names  # which a clone has


def test_every_setting_of_a_core_is_an_option_of_its_command() -> None:
    shown = CliRunner().invoke(app, ["core", "--help"], env={"COLUMNS": "200"}).stdout
    assert [name for name in CORE_SETTINGS if option_name(name) not in shown] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["core", "--model", "{empty}"], "midfill: {empty} is not a model folder: it has no config.json"),
        (["core", "--model", "no-such"], "midfill: no model 'no-such': it is neither"),
        (["lsp", "--max-tokens", "0"], "midfill: --max-tokens = 0: must be at least 1"),
        (["core", "--log-file", "{empty}/no/core.log"], "midfill: {empty}/no/core.log cannot be written: No such file"),
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


def test_names_are_utf_8_whatever_the_locale(tmp_path: Path, runtime: Path) -> None:
    (tmp_path / "ÄÖ").mkdir()
    (tmp_path / "ÄÖ" / "ü.py").write_text("x")
    (tmp_path / ".midfillignore").write_text("ÄÖ/ü*\n", encoding="utf-8")
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "utf-8"}
    command = (sys.executable, "-m", "midfill", "complete", "ÄÖ/ü.py:1:1")
    paths = os.pathsep.join([str(Path.cwd()), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **ascii_only, "PYTHONPATH": paths}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("ÄÖ/ü* in .midfillignore, line 1.\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has such a file")
@pytest.mark.parametrize("command", ["--version", "--help", "models"])
def test_a_full_disk_below_the_output_is_told(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            (sys.executable, "-m", "midfill", command), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "midfill: the output cannot be written: No space left on device\n")


def test_nothing_wraps_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table.grid()
    table.add_row("word " * 100)
    open_console().print(table)
    open_console(stderr=True).print("word " * 100)
    assert [len(text.splitlines()) for text in capsys.readouterr()] == [1, 1]


def test_an_interruption_while_a_command_is_imported_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("midfill.__main__._run", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == ""
