"""The Neovims under test; without them (make test-nvim installs them) these tests are left out, and that is said."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

FOLDER = os.environ.get("TEST_NVIM_FOLDER", "")

if FOLDER:
    from tests.e2e.neovim.driver import Neovim, Program, opened, until
    from tests.e2e.neovim.script import Script

    OpenNeovim = Callable[..., Neovim]
    OpenScripted = Callable[..., Neovim]
    NEWEST = Path(FOLDER).resolve() / "forky/usr/bin/nvim"
    OLDEST = Path(FOLDER).resolve() / "trixie/usr/bin/nvim"
    on_both = pytest.mark.parametrize("program", [Program(NEWEST), Program(OLDEST)], ids=str)
    """Where the editor's version matters; other tests run in the newest alone."""
else:
    collect_ignore_glob = ["test_*.py"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not FOLDER:
        terminalreporter.write_line("left out: the tests on Neovim (make test-nvim)")


if FOLDER:

    @pytest.fixture
    def program() -> Program:
        return Program(NEWEST)

    @pytest.fixture
    def open_neovim(program: Program, runtime: Path, tmp_path: Path) -> Iterator[OpenNeovim]:
        """Opens a file with the given text in a Neovim of its own, which ends with the test."""
        with ExitStack() as stack:

            def open_file(text: str = "", name: str = "demo.py", **how: Any) -> Neovim:
                file = tmp_path / name
                file.write_bytes(text.encode())
                home = tmp_path / f"home-{name}"
                neovim: AbstractContextManager[Neovim] = opened(program, file, home, runtime, **how)
                return stack.enter_context(neovim)

            yield open_file

    @pytest.fixture
    def script(tmp_path: Path) -> Script:
        return Script(tmp_path)

    @pytest.fixture
    def open_scripted(open_neovim: OpenNeovim, script: Script) -> OpenScripted:
        """Opens a file whose language server follows the script; `options` are added to those of setup(), in Lua."""

        def open_file(text: str = "", options: str = "{}", **how: Any) -> Neovim:
            neovim = open_neovim(text, options=f"vim.tbl_deep_extend('force', {script.options}, {options})", **how)
            until(lambda: script.told("textDocument/didOpen"))
            return neovim

        return open_file

    @pytest.fixture
    def tmux() -> Path:
        """The system's tmux, or the one unpacked beside Neovim."""
        found = shutil.which("tmux")
        path = Path(found) if found else NEWEST.with_name("tmux")
        subprocess.run([path, "-V"], check=True, capture_output=True)
        return path
