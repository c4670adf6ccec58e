from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SIZE = 200 * 2**20
PROGRAM = f"""
import psutil
from midfill_lab.training.allocator import keep_freed_memory
{{call}}
kept = b"x" * {SIZE}
del kept
print(psutil.Process().memory_info().rss)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another malloc")
def test_freed_memory_stays_with_the_process() -> None:
    given_back, kept = (
        int(subprocess.run([sys.executable, "-c", PROGRAM.format(call=call)], capture_output=True, check=True).stdout)
        for call in ("", "keep_freed_memory()")
    )
    assert kept - given_back > SIZE // 2
