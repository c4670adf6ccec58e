"""The scripted server of a test: what it answers, and what it was told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.e2e.neovim import scripted_server


class Script:
    """What the scripted server answers, and what it was told."""

    def __init__(self, folder: Path) -> None:
        self._script = folder / "script.json"
        self._log = folder / "log"
        self.answer("")

    def answer(self, *texts: str, **more: Any) -> None:
        written = self._script.with_suffix(".new")
        written.write_text(json.dumps({"texts": texts} | more), encoding="utf-8")
        written.replace(self._script)  # at once: the server may be reading

    @property
    def command(self) -> list[str]:
        return [sys.executable, scripted_server.__file__, str(self._script), str(self._log)]

    @property
    def options(self) -> str:
        return "{ cmd = {" + ", ".join(f"[[{part}]]" for part in self.command) + "} }"

    def setup(self, more: str = "{}") -> str:
        """Lua that calls setup() once more, with the same server and other options."""
        return f"require('midfill').setup(vim.tbl_deep_extend('force', {self.options}, {more}))"

    def told(self, method: str) -> list[Any]:
        if not self._log.exists():
            return []
        whole, _, _ = self._log.read_text(encoding="utf-8").rpartition("\n")  # the last line may still be written
        messages = [json.loads(line) for line in whole.splitlines()]
        return [message["params"] for message in messages if message["method"] == method]
