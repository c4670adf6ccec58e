"""A step of an installation: what it shows of a command's output, and what it keeps in the log."""

from __future__ import annotations

import io
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

SCRIPT = Path(__file__).parents[2] / "packaging" / "step.py"
STEP = SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def step(log: Path, *program: str, label: str = "Building it") -> tuple[int, list[str]]:
    command = [sys.executable, str(SCRIPT), str(log), label, *program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


def test_two_thousand_lines_become_one_and_stand_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "build" / "it.log"
    status, shown = step(log, sys.executable, "-c", "for n in range(2000): print('compiling', n)")
    assert status == 0
    assert len(shown) == 1
    assert shown[0].startswith("Building it ... ")
    assert log.read_text().splitlines()[1:] == [f"compiling {number}" for number in range(2000)]


def test_a_failure_shows_the_last_lines_and_names_the_log(tmp_path: Path) -> None:
    log = tmp_path / "it.log"
    program = "import sys; [print('line', n) for n in range(100)]; sys.exit('no compiler')"
    status, shown = step(log, sys.executable, "-c", program)
    assert status == 1
    assert "failed after" in shown[0]
    assert [line.strip() for line in shown[-3:]] == ["line 99", "no compiler", f"The whole output is in {log}"]
    assert len(shown) < 30
    assert "line 0" in log.read_text()


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    status, shown = step(tmp_path / "it.log", "no-such-program")
    assert (status, shown[-1]) == (127, "no-such-program: No such file or directory")


def test_steps_of_one_target_share_a_log(tmp_path: Path) -> None:
    log = tmp_path / "it.log"
    for text in ("one", "two"):
        step(log, sys.executable, "-c", f"print({text!r})")
    assert [line for line in log.read_text().splitlines() if not line.startswith("$")] == ["one", "two"]


@pytest.mark.parametrize(
    ("lines", "doing", "large"),
    [
        (["Collecting torch<3,>=2.6"], "looking for torch<3,>=2.6", ""),
        (["  Downloading https://host/a/torch-2.13.0.whl (190.2 MB)"], "downloading torch-2.13.0.whl (190 MB)", "190"),
        (["  Using cached torch-2.13.0.whl (190.2 MB)"], "downloading torch-2.13.0.whl (190 MB)", ""),
        (["  Downloading a.whl (30 MB)", "Progress 15000000 of 30000000"], "downloading a.whl (30 MB): 50 %", "30"),
        (["Downloading torch (180.3MiB)"], "downloading torch (180 MB)", "180"),
        (["  Building editable for midfill (pyproject.toml): started"], "compiling midfill's kernel", ""),
        (["  Building wheel for peft (pyproject.toml): started"], "building peft", ""),
        (["Installing collected packages: a, b"], "unpacking the packages", ""),
        (["running bdist_wheel", "running build_ext"], "compiling midfill's kernel", ""),
        (["creating build/lib"], "", ""),
    ],
)  # fmt: skip
def test_what_pip_and_uv_are_doing(lines: list[str], doing: str, large: str) -> None:
    progress = STEP.Progress()
    for line in lines:
        progress.read(line)
    assert progress.doing.endswith(doing)
    assert bool(doing) == bool(progress.doing)
    assert large in progress.large
    assert bool(large) == bool(progress.large)


@pytest.mark.parametrize("live", [True, False])
def test_a_large_download_is_shown(live: bool) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return live

    screen = Screen()
    display, progress = STEP.Display(screen, "Installing it"), STEP.Progress()
    progress.read("  Downloading torch.whl (190.2 MB)")
    display.tell(progress)
    display.tell(progress)
    display.end(0)
    told = "downloading torch.whl (190 MB)"
    assert screen.getvalue().count(told) == (2 if live else 1)  # a terminal redraws it
    assert screen.getvalue().count("\n") == (1 if live else 3)


def test_a_long_step_tells_what_it_does_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(STEP.time, "monotonic", lambda: now[0])
    screen = io.StringIO()
    display, progress = STEP.Display(screen, "Installing it"), STEP.Progress()
    progress.read("Installing collected packages: a, b")
    while now[0] < 700:
        now[0] += 0.5
        display.tell(progress)
    told = [line for line in screen.getvalue().splitlines() if "unpacking" in line]
    assert len(told) == 6  # after 15, 30, 60, 120, 240 and 480 seconds
