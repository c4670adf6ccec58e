"""The demo as a user runs it: real processes, the bundled model, and nothing left behind."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from midfill.headless.environment import processes_in

TIMEOUT_SECONDS = 110.0
HEALED_TOKENS = 4  # token healing computes the partial word at the cursor again


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables of a demo's processes; that none of them is left at the end is part of every test."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("MIDFILL_")}
    mark = str(tmp_path)
    yield {**kept, "TMPDIR": mark, "XDG_RUNTIME_DIR": mark, "COLUMNS": "100"}
    assert list(processes_in({"TMPDIR": mark})) == []
    assert list(tmp_path.glob("midfill-*")) == []


def start(environment: dict[str, str], *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "midfill", "demo", *options]
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=_hear_ctrl_c,
    )


def _hear_ctrl_c() -> None:
    """Jobs that a shell starts in the background ignore it, and so would what they start."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_the_demo(environment: dict[str, str]) -> None:
    demo = start(environment, "--speed", "20")
    shown, errors = demo.communicate(timeout=TIMEOUT_SECONDS)

    assert demo.returncode == 0, errors
    assert errors.splitlines()[:1] == ["midfill: starting the language server"]
    keys = re.findall(r"^(\S.*?) +(hit|partial|miss|prefetch) +(\d+)(?: of \d+)? tokens +\d+ ms  (.*)$", shown, re.MULTILINE)
    labels = [key[0] for key in keys]
    assert {"backspace", "( auto-closed", "accept", "undo", "Enter"} <= set(labels)
    assert sum(label.startswith("jump to ") for label in labels) >= 2
    assert any("«" in key[3] for key in keys)

    assert sum(len(label) == 1 for label in labels) > 50
    since = 0  # keys that were typed as suggested are computed with the first that is not
    for label, _, tokens, _ in keys:
        since += 1
        assert len(label) > 1 or int(tokens) <= 3 + HEALED_TOKENS + since
        since = 0 if int(tokens) else since
    assert keys[-1][3].startswith("del self._items[name]▏")

    for word in ("median", "hit", "PSM", "Neovim", "Helix", "VS Code"):
        assert word in shown


def test_interrupted_while_the_core_starts(environment: dict[str, str], tmp_path: Path) -> None:
    demo = start(environment)
    while not list(tmp_path.glob("midfill-*/core-*.log")):
        time.sleep(0.02)
    demo.send_signal(signal.SIGINT)
    _, errors = demo.communicate(timeout=TIMEOUT_SECONDS)
    assert demo.returncode == 130
    assert all(line.startswith("midfill: ") for line in errors.splitlines()), errors


def test_a_model_that_cannot_be_used(environment: dict[str, str], tmp_path: Path) -> None:
    demo = start(environment, "--model", str(tmp_path))
    _, errors = demo.communicate(timeout=TIMEOUT_SECONDS)
    assert demo.returncode == 1
    assert errors.startswith("midfill: ")
    assert "config.json" in errors
    assert "Traceback" not in errors
