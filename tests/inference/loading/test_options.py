from __future__ import annotations

import sys
from pathlib import Path

import pytest

from inference.loading.options import find_llama_server


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a shell script")
@pytest.mark.parametrize(
    ("script", "has_gpu"),
    [
        ("echo 'Available devices:'; echo '  CUDA0: NVIDIA H100 (81559 MiB, 80000 MiB free)'", True),
        ("echo 'Available devices:'; echo '  (none)'", False),
        ("echo 'Available devices:'", False),
        ("echo 'error: invalid argument: --list-devices' >&2; exit 1", False),
    ],
)
def test_a_llama_server_counts_if_it_lists_a_gpu(tmp_path: Path, script: str, *, has_gpu: bool) -> None:
    program = tmp_path / "llama-server"
    program.write_text(f'#!/bin/sh\n[ "$1" = --list-devices ] || exit 3\n{script}\n')
    program.chmod(0o755)
    assert find_llama_server({"PATH": str(tmp_path)}) == (str(program) if has_gpu else "")
    assert find_llama_server({"PATH": ""}) == ""
