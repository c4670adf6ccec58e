from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run(code: str, *arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True, timeout=100
    ).stdout


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
def test_limit_of_open_files_is_raised_as_far_as_it_may_be() -> None:
    code = (
        "import resource; from inference.server.process_limits import raise_file_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 512))\n"
        "print(raise_file_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); print(raise_file_limit())"
    )
    assert run(code).split() == ["384", "512", "32"]


def test_log_file_stays_small(tmp_path: Path) -> None:
    code = (
        "import sys, logging; from pathlib import Path; from inference.server import process_limits\n"
        "process_limits.MAX_LOG_BYTES = 10_000; process_limits.configure_log(Path(sys.argv[1]))\n"
        "for number in range(1000): logging.getLogger('inference').info('line %d', number)"
    )
    run(code, str(tmp_path / "core.log"))
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["core.log", "core.log.1"]
    assert all(file.stat().st_size <= 10_000 for file in files)
    assert "line 999" in files[0].read_text()
