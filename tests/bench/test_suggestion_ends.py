from __future__ import annotations

import ast
from pathlib import Path

import pytest

from bench.suggestion_ends import Gap, gaps, measure, verdicts
from inference.loading.options import engine_options
from protocol.messages import Completion, Usage
from protocol.settings import Settings
from tests.inference.tiny import write_checkpoint

CUT = Completion("x", "length", Usage(1, 1, 1, 1, 0.0, 0.0, 0.0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "package"
    source.mkdir()
    functions = (f"def f{n}(value):\n    if value:\n        value += {n}\n    return value\n\n\n" for n in range(30))
    (source / "module.py").write_text("".join(functions))
    return source


def test_gaps_are_places_in_files_that_parse(folder: Path) -> None:
    found = list(gaps([folder], 10, seed=0))
    assert {gap.kind for gap in found} == {"rest of line", "statements", "block"}
    text = (folder / "module.py").read_text()
    assert all(gap.before + gap.middle + gap.after == text for gap in found)
    for gap in found:
        if gap.kind == "block":
            assert gap.before.splitlines()[-2].endswith(":")
        if gap.kind == "statements":
            ast.parse(f"if True:\n{gap.before.rpartition(chr(10))[2]}{gap.middle}\n")


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("value += 1\n    return value", {"right", "lines"}),
        ("value += 1", {"short"}),
        ("value += 1\n    return value\n    print()", {"long"}),
        ("return 1\n    if value:", {"lines", "header"}),
        ("return 1\n    call(", {"lines", "broken"}),
        ("", {"nothing"}),
    ],
)
def test_verdicts(shown: str, said: set[str]) -> None:
    gap = Gap("statements", "def f(value):\n    ", "value += 1\n    return value", "\n")
    assert set(verdicts(gap, shown, None)) == said
    assert set(verdicts(gap, shown, CUT)) == said | ({"limit"} if shown else set())


def test_a_model_is_measured(folder: Path, tmp_path: Path) -> None:
    settings = Settings(model=str(write_checkpoint(tmp_path / "model")), hold_back_percent=0, max_tokens=4)
    assert engine_options(settings).model == settings.model
    counts = measure([folder], settings, 4, 0, lambda *_: None)
    assert counts.keys() == {"rest of line", "statements", "block"}
    assert all(0 < found["n"] <= 4 and found["shown"] <= found["n"] for found in counts.values())
