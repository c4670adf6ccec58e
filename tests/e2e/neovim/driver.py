"""A real Neovim in a process of its own, with a language server and a core of its own, driven through its API."""

from __future__ import annotations

import gc
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pynvim

T = TypeVar("T")

PLUGIN = Path(__file__).parents[3] / "nvim"
SERVER = [sys.executable, "-m", "midfill", "lsp"]
NAMESPACES = ("nvim.lsp.inline_completion", "midfill.ghost")

# A core that loads torch on a busy machine takes its time.
READY_SECONDS = 90.0


@dataclass(frozen=True)
class Program:
    """A Neovim to test, and which of its ways of suggesting."""

    path: Path
    ghost_text: str

    def __str__(self) -> str:
        return f"{self.path.parents[2].name}-{self.ghost_text}"


def until(probe: Callable[[], T], seconds: float = 20.0) -> T:
    """The first true value of `probe`; AssertionError with the last one if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (value := probe()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {value!r}"
        time.sleep(0.02)
    return value


class Neovim:
    """One Neovim with one file open."""

    def __init__(self, nvim: pynvim.Nvim, file: Path) -> None:
        self.api = nvim
        self.file = file

    def lua(self, code: str, *args: Any) -> Any:
        return self.api.exec_lua(code, *args)

    def until_ready(self) -> None:
        """Wait for the core to have loaded its model."""
        until(lambda: self.status().get("state") in ("ready", "failed"), READY_SECONDS)
        assert self.status()["state"] == "ready", self.status()

    def status(self) -> dict[str, Any]:
        return self._table(
            "local client = require('midfill.client').of(0)"
            "return client and require('midfill.state').status(client.id) or {}"
        )

    def usage(self) -> dict[str, Any]:
        return self._table("return require('midfill.state').usage(vim.api.nvim_get_current_buf()) or {}")

    def _table(self, code: str) -> dict[str, Any]:
        return dict(self.lua(code))  # Lua's empty table arrives as a list

    def keys(self, keys: str) -> None:
        """Type, as a user does, one key after another."""
        self.api.input(keys)

    def mode(self) -> str:
        return str(self.api.api.get_mode()["mode"])

    def ghost(self) -> str:
        """The ghost text on the screen; its lines below the cursor's are behind \\n."""
        marks = []
        for name in NAMESPACES:
            namespace = self.api.api.create_namespace(name)
            marks += self.api.current.buffer.api.get_extmarks(namespace, 0, -1, {"details": True})
        first = "".join(chunk[0] for mark in marks for chunk in mark[3].get("virt_text", []))
        below = ["".join(chunk[0] for chunk in line) for mark in marks for line in mark[3].get("virt_lines", [])]
        return "\n".join([first, *below])

    def offer(self) -> str:
        """What the plugin would insert now; empty if nothing."""
        return str(
            self.lua(
                "local builtin = package.loaded['midfill.builtin']"
                "local rest = (builtin or require('midfill.own')).rest(vim.api.nvim_get_current_buf())"
                "return rest and rest.text or ''"
            )
        )

    def until_ghost(self) -> str:
        """Wait until a suggestion is on the screen and can be accepted: its text."""
        until(lambda: self.ghost() and self.offer())
        return self.offer()

    def text(self) -> str:
        return "\n".join(self.api.current.buffer[:])

    def write(self) -> bytes:
        """Write the file, in normal mode: its bytes."""
        self.api.command("write")
        return self.file.read_bytes()

    def messages(self) -> str:
        return str(self.api.command_output("messages"))


@contextmanager
def opened(
    program: Program, file: Path, home: Path, runtime: Path, options: str = "{}", before: str = ""
) -> Iterator[Neovim]:
    """Open the file in a Neovim that has been set up with `options`, in Lua; it ends with the block."""
    home.mkdir(exist_ok=True)
    init = home / "init.lua"
    init.write_text(init_script(program, options, before), encoding="utf-8")
    with environment(home, runtime), attached(program, init, file) as nvim:
        yield Neovim(nvim, file)
        nvim.command("stopinsert")
        assert "stack traceback" not in nvim.command_output("messages")


@contextmanager
def attached(program: Program, init: Path, file: Path) -> Iterator[pynvim.Nvim]:
    """Run a Neovim, in the present environment, with one file; it ends with the block."""
    argv = [str(program.path), "--headless", "--embed", "-u", str(init), "-i", "NONE", "-n", str(file)]
    nvim = pynvim.attach("child", argv=argv)
    try:
        yield nvim
    finally:
        nvim.command("qall!", async_=True)
        nvim.close()
        with warnings.catch_warnings():
            # pynvim leaves the pipes of an editor that has ended to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            del nvim
            gc.collect()


def init_script(program: Program, options: str, before: str = "") -> str:
    """The init.lua of a user of the plugin."""
    command = "{" + ", ".join(f"[[{part}]]" for part in SERVER) + "}"
    return f"""
vim.opt.runtimepath:prepend([[{PLUGIN}]])
vim.opt.swapfile = false
{before}
require('midfill').setup(vim.tbl_deep_extend('force', {{
  cmd = {command},
  ghost_text = '{program.ghost_text}',
}}, {options}))
"""


@contextmanager
def environment(home: Path, runtime: Path) -> Iterator[None]:
    """The environment of Neovim and of what it starts: nothing of the user's own, and the tests' own core."""
    names = ("CONFIG", "DATA", "STATE", "CACHE")
    changed = {f"XDG_{name}_HOME": str(home / name.lower()) for name in names} | {
        "MIDFILL_RUNTIME_DIR": str(runtime),
        "MIDFILL_EXIT_AFTER_S": "30",  # where a run is broken off
        "TERM": "xterm-256color",
    }
    saved = dict(os.environ)
    os.environ.update(changed)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)
