"""midfill.el in a real Emacs in a terminal, with a real language server, core and model."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.emacs.conftest import EMACS
from tests.e2e.neovim.terminal import Terminal, running

MIDFILL_EL = Path(__file__).parents[3] / "editors/emacs"
INIT = """
(setq auto-save-default nil make-backup-files nil create-lockfiles nil inhibit-startup-screen t)
(menu-bar-mode -1)
(add-to-list 'load-path "{folder}")
(require 'midfill)
(setq midfill-command '("{python}" "-m" "midfill" "lsp") midfill-settings '(:holdBackPercent 0))
(add-hook 'prog-mode-hook #'midfill-mode)
"""
TEXT = "def add(first, second):\n    return first + second\n\n\ndef add_all(first, second, third):\n    return \n"
SECONDS = 90.0  # a core loads torch first


def until(probe: Callable[[], bool], terminal: Terminal) -> None:
    deadline = time.monotonic() + SECONDS
    while not probe():
        assert time.monotonic() < deadline, terminal.screen()
        time.sleep(0.1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "demo.py"
    path.write_text(TEXT)
    return path


@pytest.fixture
def emacs(file: Path, runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """Emacs with the file, connected to a core, its cursor behind the last `return`."""
    variables = {"RUNTIME_DIR": runtime, "MODEL": "tiny", "EXIT_AFTER_S": 30}
    for name, value in {"HOME": tmp_path, **{f"MIDFILL_{name}": value for name, value in variables.items()}}.items():
        monkeypatch.setenv(name, str(value))
    init = tmp_path / "init.el"
    init.write_text(INIT.format(folder=MIDFILL_EL, python=sys.executable))
    tmux = shutil.which("tmux")
    assert tmux is not None, "these tests need tmux"
    command = [EMACS, "-nw", "-Q", "-l", str(init), "+6:12", str(file)]
    with running(Path(tmux), tmp_path, command) as terminal:
        connected = (" midfill ", " midfill)", "midfill:model unloaded")  # the first key loads the model
        until(lambda: any(mode in terminal.screen() for mode in connected), terminal)
        yield terminal


def line(terminal: Terminal) -> str:
    """What is on the screen behind the second `return`."""
    lines = terminal.screen().splitlines()
    return lines[5].removeprefix("    return").strip()


def column(terminal: Terminal) -> int:
    """Where the cursor is."""
    return int(terminal.run("display-message", "-p", "#{cursor_x}"))


def saved(terminal: Terminal, file: Path) -> str:
    """What the file has in that line after it was saved."""
    before = file.stat().st_mtime_ns
    terminal.type("C-x", "C-s")
    until(lambda: file.stat().st_mtime_ns != before, terminal)
    return file.read_text().splitlines()[5].removeprefix("    return ")


def test_tab_accepts_a_suggestion(emacs: Terminal, file: Path) -> None:
    emacs.type_text("fi")
    until(lambda: len(line(emacs)) > len("fi"), emacs)
    shown = line(emacs)
    assert shown.startswith("first + second")
    emacs.type("Tab")
    assert saved(emacs, file) == shown


@pytest.mark.parametrize("keys", [("C-g",), ("M-x", "midfill-dismiss", "Enter")], ids="".join)
def test_a_suggestion_is_dismissed(keys: tuple[str, ...], emacs: Terminal, file: Path) -> None:
    emacs.type_text("fi")
    until(lambda: len(line(emacs)) > len("fi"), emacs)
    emacs.type(*keys)
    until(lambda: line(emacs) == "fi", emacs)
    assert saved(emacs, file) == "fi"


def test_a_suggestion_is_typed_and_taken_by_the_word(emacs: Terminal, file: Path) -> None:
    emacs.type_text("fi")
    until(lambda: line(emacs).startswith("first + second"), emacs)
    for keys, typed in (("rst", "first"), ("M-Right", "first +"), ("M-Right", "first + second")):
        emacs.type(keys)
        until(lambda: column(emacs) == len(f"    return {typed}"), emacs)  # noqa: B023 - called at once
        assert line(emacs).startswith("first + second")
    emacs.type("C-g")
    assert saved(emacs, file) == "first + second"


def test_a_renamed_buffer_is_the_document_of_its_new_name(emacs: Terminal, file: Path) -> None:
    emacs.type_text("fi")
    until(lambda: line(emacs).startswith("first + second"), emacs)
    emacs.type("C-x", "C-w", "C-a", "C-k")
    emacs.type_text(str(file.with_name("id_rsa.py")))
    emacs.type("Enter")
    until(lambda: "id_rsa.py" in emacs.screen() and line(emacs) == "fi", emacs)
    emacs.type_text("r")
    time.sleep(3)  # a suggestion would stand after a tenth of this
    assert line(emacs) == "fir"


def test_an_indirect_buffer_leaves_the_document_to_its_base(emacs: Terminal, file: Path) -> None:
    emacs.type("C-x", "4", "c")
    until(lambda: "<2>" in emacs.screen(), emacs)
    emacs.type("C-x", "k", "Enter", "C-x", "1")
    until(lambda: "<2>" not in emacs.screen().splitlines()[-2], emacs)
    emacs.type_text("fi")
    until(lambda: line(emacs).startswith("first + second"), emacs)
