"""Runs the commands of an installation of midfill as its user does: elsewhere, and with nothing in the environment."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

SESSION = "".join(
    f"Content-Length: {len(message)}\r\n\r\n{message}"
    for message in (
        json.dumps({"jsonrpc": "2.0", **fields})
        for fields in (
            {"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}},
            {"id": 2, "method": "shutdown"},
            {"method": "exit"},
        )
    )
)
"""What an editor writes to a language server that it only starts and ends."""


def run(command: Sequence[object], home: Path, *, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """The command's end and output; it runs in `home`, with the path and the given variables alone."""
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "MIDFILL_RUNTIME_DIR": str(home), "COLUMNS": "200"}
    return subprocess.run(
        [str(part) for part in command],
        cwd=home,
        env=environment | variables,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
