from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from midfill.replay.trace import play, read_trace

ROOT = Path(__file__).parents[2]


def test_what_is_typed_makes_the_file_whole_again(tmp_path: Path) -> None:
    text = "".join(f"def f{number}(x):\n    return x + {number}\n\n\n" for number in range(40))
    file, session = tmp_path / "file.py", tmp_path / "session.json"
    file.write_text(text)
    command = [sys.executable, "bench/typed_session.py", str(file), str(session), "--statements", "5", "--lines", "2"]
    subprocess.run(command, cwd=ROOT, check=True)
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
