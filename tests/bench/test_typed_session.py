from __future__ import annotations

from pathlib import Path

import pytest

from midfill.replay.trace import play, read_trace
from tests.bench.conftest import RunBench


@pytest.mark.parametrize(
    ("suffix", "function"),
    [
        (".py", "def f{number}(x):\n    return x + {number}\n\n\n"),
        (".ts", "function f{number}(x: number): number {{\n  return x + {number};\n}}\n\n"),
        (".js", "const f{number} = (x) => {{\n  return x + {number};\n}};\n\n"),
    ],
)
def test_what_is_typed_makes_the_file_whole_again(tmp_path: Path, run_bench: RunBench, suffix: str, function: str) -> None:
    text = "".join(function.format(number=number) for number in range(40))
    file, session = tmp_path / f"file{suffix}", tmp_path / "session.json"
    file.write_text(text)
    run_bench("typed_session.py", file, session, "--statements", "5", "--lines", "2")
    trace = read_trace(session)
    steps = list(play(trace, 0, len(trace.transactions)))
    typed = len(text.splitlines()) - len(trace.start.splitlines())
    assert 5 <= typed <= 10
    assert steps[-1].text == trace.end == text
    keys = [step.inserted[0] for step in steps if step.single_cursor]
    assert len(keys) == len(steps)
    assert sum(key.startswith("\n") for key in keys) == typed
    assert all(len(key.strip()) <= 1 for key in keys)
    assert sum(step.moved_to is not None for step in steps) in (4, 5)


def test_files_of_other_languages_are_refused(tmp_path: Path, run_bench: RunBench, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file.go"
    file.write_text("package a\n")
    with pytest.raises(SystemExit):
        run_bench("typed_session.py", file, tmp_path / "session.json")
    assert ".go: expected .py or .js" in capsys.readouterr().err
