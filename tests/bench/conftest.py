"""Benches run in the process of their tests, where torch is imported already."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inference.backends.cpu.library import unavailable_reason
from tests.inference.tiny import RECORDED, ROOT, write_checkpoint

TRACE = RECORDED
RunBench = Callable[..., None]
Figures = Callable[..., Any]
needs_kernel = pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))

sys.path.append(str(ROOT / "bench"))  # where its modules find each other


@pytest.fixture
def run_bench(monkeypatch: pytest.MonkeyPatch) -> RunBench:
    """Runs a bench by its file's name with command-line arguments; SystemExit if it fails."""
    monkeypatch.chdir(ROOT)

    def run(name: str, *arguments: str | Path) -> None:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which typer replaces
        try:
            runpy.run_path(str(ROOT / "bench" / name), run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise

    return run


@pytest.fixture
def figures(run_bench: RunBench, tmp_path: Path) -> Figures:
    """Runs a bench, and returns what it writes with `--json`."""

    def run(name: str, *arguments: str | Path) -> Any:
        run_bench(name, *arguments, "--json", tmp_path / "figures.json")
        return json.loads((tmp_path / "figures.json").read_text())

    return run


@pytest.fixture(scope="package")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A checkpoint with room for a whole session, and with heads that the kernel knows."""
    shape = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
    return str(write_checkpoint(tmp_path_factory.mktemp("model"), max_position_embeddings=8192, **shape))
