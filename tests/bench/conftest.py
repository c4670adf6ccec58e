"""Benches run in the process of their tests, where torch is imported already."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RunBench = Callable[..., None]


@pytest.fixture
def run_bench(monkeypatch: pytest.MonkeyPatch) -> RunBench:
    """Runs a bench by its file's name with command-line arguments; SystemExit if it fails."""
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT / "bench")  # where its modules find each other

    def run(name: str, *arguments: str | Path) -> None:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which typer replaces
        try:
            runpy.run_path(str(ROOT / "bench" / name), run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise

    return run
