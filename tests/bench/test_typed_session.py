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
    command = [sys.executable, "bench/typed_session.py", str(file), str(session), "--blocks", "5", "--lines", "3"]
    subprocess.run(command, cwd=ROOT, check=True)
    trace = read_trace(session)
    steps = list(play(trace, 0, len(trace.transactions)))
    assert len(trace.start.splitlines()) == len(text.splitlines()) - 5 * 3
    assert steps[-1].text == trace.end == text
    assert all(step.single_cursor and len(step.inserted[0]) == 1 for step in steps)
    assert sum(step.moved_to is not None for step in steps) in (4, 5)
