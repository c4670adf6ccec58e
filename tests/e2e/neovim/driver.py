"""A real Neovim in a process of its own, with a language server and a core of its own, driven through its API."""

from __future__ import annotations

import gc
import os
import shlex
import socket
import subprocess
import sys
import tempfile
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
LOAD = f"vim.opt.runtimepath:prepend([[{PLUGIN}]])"
MIDFILL = shlex.split(os.environ.get("TEST_MIDFILL", "")) or [sys.executable, "-m", "midfill"]
SERVER = [*MIDFILL, "lsp"]
NAMESPACES = ("nvim.lsp.inline_completion", "midfill.ghost")  # of Neovim without the plugin, and with it

# Remembers for which state of the text and the cursor the last answer came.
WATCH = """
local offers = require('midfill.offers')
local take = offers.take
vim.g.answered = ''
offers.take = function(client, buf, ...)
  take(client, buf, ...)
  vim.g.answered = offers.place(buf)
end
"""

# Machines that run these tests are often busy with others; what is well takes a tenth of this.
PATIENCE_SECONDS = 60.0
READY_SECONDS = 90.0  # a core loads torch first


@dataclass(frozen=True)
class Program:
    """A Neovim to test."""

    path: Path

    def __str__(self) -> str:
        return self.path.parents[2].name


def until(probe: Callable[[], T], seconds: float = PATIENCE_SECONDS) -> T:
    """The first true value of `probe`; AssertionError with the last one if there is none in time."""
    deadline = time.monotonic() + seconds
    while not (value := probe()):
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {value!r}"
        time.sleep(0.02)
    return value


def soon(probe: Callable[[], Any], seconds: float) -> bool:
    """Whether `probe` becomes true in that time."""
    deadline = time.monotonic() + seconds
    while not probe():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class Neovim:
    """One Neovim with one file open."""

    def __init__(self, nvim: pynvim.Nvim, file: Path) -> None:
        self.api = nvim
        self.file = file

    def end(self) -> None:
        """End the connection; nothing can be asked of the editor any more."""
        self.api.close()
        with warnings.catch_warnings():
            # pynvim leaves its socket to the garbage collector.
            warnings.simplefilter("ignore", ResourceWarning)
            del self.api
            gc.collect()

    def lua(self, code: str, *args: Any) -> Any:
        return self.api.exec_lua(code, *args)

    def until_ready(self) -> None:
        """Wait for the core to have loaded its model."""
        until(lambda: self.status().get("state") in ("ready", "failed"), READY_SECONDS)
        assert self.status()["state"] == "ready", self.status()

    def status(self) -> dict[str, Any]:
        return self._table(
            "local client = require('midfill.client').of(0)return client and require('midfill.state').status(client.id) or {}"
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
            self.lua("local rest = require('midfill.offers').rest(vim.api.nvim_get_current_buf())return rest and rest.text or ''")
        )

    def answered(self) -> bool:
        """Whether an answer for what stands there now, and for the cursor, has come, be it an empty one."""
        return bool(self.lua("return vim.g.answered == require('midfill.offers').place(0)"))

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
    program: Program, file: Path, home: Path, runtime: Path, options: str = "{}", before: str = "", load: str = LOAD
) -> Iterator[Neovim]:
    """Open the file in a Neovim that has been set up with `options`, in Lua; it ends with the block."""
    home.mkdir(exist_ok=True)
    init = home / "init.lua"
    init.write_text(init_script(options, before, load), encoding="utf-8")
    with environment(home, runtime), attached(program, init, file) as neovim:
        neovim.lua(WATCH)
        yield neovim
        neovim.api.command("stopinsert")
        assert "stack traceback" not in neovim.messages()


@contextmanager
def attached(program: Program, init: Path, file: Path) -> Iterator[Neovim]:
    """Run a Neovim, in the present environment, with one file; it ends with the block."""
    with tempfile.TemporaryDirectory() as folder:  # a short path, as those of sockets have to be
        address = Path(folder) / "nvim"
        argv = [program.path, "--headless", "--listen", address, "-u", init, "-i", "NONE", "-n", file]
        nowhere = subprocess.DEVNULL
        with subprocess.Popen(argv, stdin=nowhere, stdout=nowhere, stderr=nowhere) as process:
            until(lambda: is_listening(address))
            neovim = Neovim(pynvim.attach("socket", path=str(address)), file)
            try:
                yield neovim
                neovim.api.command("qall!", async_=True)
                process.wait(PATIENCE_SECONDS)  # what it is told before the connection ends may be lost
            finally:
                process.kill()
                neovim.end()


def is_listening(path: Path) -> bool:
    """Whether a process accepts connections there."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def init_script(options: str, before: str = "", load: str = LOAD) -> str:
    """The init.lua of a user of the plugin."""
    command = "{" + ", ".join(f"[[{part}]]" for part in SERVER) + "}"
    return f"""
{load}
vim.opt.swapfile = false
{before}
require('midfill').setup(vim.tbl_deep_extend('force', {{
  cmd = {command},
}}, {options}))
"""


@contextmanager
def environment(home: Path, runtime: Path) -> Iterator[None]:
    """The environment of Neovim and of what it starts: nothing of the user's own, and the tests' own core."""
    names = ("CONFIG", "DATA", "STATE", "CACHE")
    changed = {f"XDG_{name}_HOME": str(home / name.lower()) for name in names} | {
        "MIDFILL_RUNTIME_DIR": str(runtime),
        "MIDFILL_MODEL": os.environ.get("TEST_MODEL", "tiny"),
        "MIDFILL_PREPARE_AHEAD": "always",  # opening a file loads the model
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
