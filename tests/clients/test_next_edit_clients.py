"""Published clients of Copilot's next edits, unmodified, on midfill's language server, set up as the page says.

`TEST_NEXT_EDIT_CLIENTS` names a folder with their repositories, by name; those that are not there are left out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lsp_server.usage.statistics import read_statistics, statistics_file, total
from tests.inference.tiny import ROOT

CLIENTS = Path(os.environ.get("TEST_NEXT_EDIT_CLIENTS", "not-given")).resolve()
NVIM = Path(os.environ.get("TEST_NVIM_FOLDER", "not-given")).resolve() / "forky/usr/bin/nvim"
EMACS, TMUX = shutil.which(os.environ.get("TEST_EMACS", "emacs")), shutil.which("tmux")
LISP = ("copilot.el", "compat", "track-changes", "editorconfig-emacs")

BEFORE = "é = 1\nb = 2\nc = 3\nd = é + aa\n"
EDITED = "xé = 1\nb = 2\nc = 3\nd = é + aa\n"
AFTER = EDITED.replace("aa", "bbb")

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]


def needs(*paths: Path | str | None) -> pytest.MarkDecorator:
    missing = [str(path) for path in paths if path is None or not Path(path).exists()]
    return pytest.mark.skipif(bool(missing), reason=f"not found: {', '.join(missing)}")


def configuration(client: str, program: Path) -> str:
    """What the page has a user of this client write, with this program and a model that a scripted core has."""
    page = (ROOT / "docs" / "next-edit.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"\*\*{re.escape(client)}\*\*.*?```\w+\n(.*?)```", page, re.DOTALL)[:1]
    assert "sweepai/" in block
    return block.replace("/path/to/midfill/.venv/bin/midfill", str(program)).replace("sweepai/", "sweep-b:")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The command `midfill`, whose next edits come from a core that rewrites the document's last line."""
    argv = [sys.executable, "-m", "tests.e2e.scripted_core"]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as core:
        assert core.stdin is not None
        assert core.stdout is not None
        url = core.stdout.readline().strip()
        core.stdin.write(json.dumps({"answer": AFTER}) + "\n")
        core.stdin.flush()
        for name, value in {"CORE": url, "CORE_TOKEN": "secret", "NEXT_EDIT_ENGINE": url}.items():
            monkeypatch.setenv(f"MIDFILL_{name}", value)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        program = tmp_path / "midfill"
        program.write_text(f'#!/bin/sh\ncd {ROOT}\nexec {sys.executable} -m midfill "$@" 2>>{tmp_path}/server.log\n')
        program.chmod(0o700)
        yield program
        log = (tmp_path / "server.log").read_text()
        core.kill()
    assert log == ""
    assert counts() == (1, 1, 0)


def counts() -> tuple[int, int, int]:
    """The next edits that were shown, accepted and refused."""
    all_days = total(read_statistics(statistics_file()).values())
    return all_days.next_edits_shown, all_days.next_edits_accepted, all_days.next_edits_refused


@contextmanager
def neovim(tmp_path: Path, plugin: str, lua: str) -> Iterator[Any]:
    from tests.e2e.neovim.driver import Program, attached, environment, until

    init, file = tmp_path / "init.lua", tmp_path / "demo.py"
    init.write_text(f"vim.opt.runtimepath:prepend([[{CLIENTS / plugin}]])\nvim.opt.swapfile = false\n{lua}")
    file.write_text(BEFORE, encoding="utf-8")
    with environment(tmp_path / "home", tmp_path):
        os.environ["XDG_STATE_HOME"] = str(tmp_path / "state")
        with attached(Program(NVIM), init, file) as neovim:
            until(lambda: neovim.lua("return #vim.tbl_filter(function(c) return c.initialized end, vim.lsp.get_clients())"))
            yield neovim
            assert neovim.write() == AFTER.encode()  # which also sends the last change
            assert neovim.messages().count("\n") == 0, neovim.messages()  # but that of the write


@needs(NVIM, CLIENTS / "sidekick.nvim")
def test_sidekick(program: Path, tmp_path: Path) -> None:
    from tests.e2e.neovim.driver import until

    lua = configuration("sidekick.nvim", program) + "\nrequire('sidekick').setup()"
    with neovim(tmp_path, "sidekick.nvim", lua) as nvim:
        nvim.keys("ix<Esc>")
        until(lambda: nvim.lua("return require('sidekick.nes').have()"))
        assert nvim.lua("return require('sidekick').nes_jump_or_apply()")
        until(lambda: list(nvim.api.current.window.cursor) == [4, len("d = é + ".encode())])
        assert nvim.lua("return require('sidekick').nes_jump_or_apply()")
        until(lambda: nvim.text() + "\n" == AFTER)


@needs(NVIM, CLIENTS / "copilot-lsp")
def test_copilot_lsp(program: Path, tmp_path: Path) -> None:
    from tests.e2e.neovim.driver import until

    lua = "vim.g.copilot_nes_debounce = 50\n" + configuration("copilot-lsp", program)
    with neovim(tmp_path, "copilot-lsp", lua) as nvim:
        nvim.keys("ix<Esc>")
        until(lambda: nvim.lua("return vim.b.nes_state ~= nil"))
        assert nvim.lua("return require('copilot-lsp.nes').walk_cursor_start_edit()")
        until(lambda: nvim.api.current.window.cursor[0] == 4)
        assert nvim.lua("return require('copilot-lsp.nes').apply_pending_nes()")
        until(lambda: nvim.text() + "\n" == AFTER)


@needs(EMACS, TMUX, *(CLIENTS / name for name in LISP))
def test_copilot_el(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.e2e.neovim.driver import until
    from tests.e2e.neovim.terminal import running

    init, file = tmp_path / "init.el", tmp_path / "demo.py"
    loaded = "".join(f'(add-to-list \'load-path "{CLIENTS / name}")\n' for name in LISP)
    setting = "(setq make-backup-files nil auto-save-default nil create-lockfiles nil inhibit-startup-screen t)\n"
    init.write_text(loaded + setting + "(require 'copilot-nes)\n" + configuration("copilot.el", program))
    file.write_text(BEFORE, encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    with running(Path(str(TMUX)), tmp_path, [str(EMACS), "-nw", "-Q", "-l", str(init), str(file)]) as terminal:
        until(lambda: "NES" in terminal.screen())
        terminal.type_text("x")
        until(lambda: "bbb" in terminal.screen())
        terminal.type("Tab", "Tab")  # there, and in the text
        until(lambda: "é + bbb\n" in terminal.screen())
        terminal.type("C-x", "C-s", "C-x", "C-c")
        until(lambda: file.read_text(encoding="utf-8") == AFTER)
        until(lambda: counts() == (1, 1, 0))  # the server has ended
