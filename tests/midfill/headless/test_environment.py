"""A runtime folder of its own: what runs with it ends with it."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

from midfill.headless.environment import RUNTIME_VARIABLE, private_core_environment


def test_what_runs_with_the_folder_ends_with_it() -> None:
    with private_core_environment() as variables:
        folder = Path(variables[RUNTIME_VARIABLE])
        assert folder.stat().st_mode & 0o777 == 0o700
        command = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
        process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
    assert not psutil.pid_exists(process.pid)
    process.stdout.close()
    assert not folder.exists()
