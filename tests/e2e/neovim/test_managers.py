"""The repository as plugin managers install it: its root is the plugin's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.neovim.conftest import NEWEST, OpenScripted
from tests.e2e.neovim.driver import PLUGIN, Program, environment
from tests.e2e.neovim.script import Script


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with what is in ours of the plugin, below a folder of packages."""
    folder = tmp_path / "packages/pack/any/opt/midfill"
    for name in ("lua", "nvim", "plugin"):
        shutil.copytree(PLUGIN.parent / name, folder / name, ignore=shutil.ignore_patterns("tags"))
    author = ["-c", "user.name=Test", "-c", "user.email=test@localhost"]
    for arguments in (["init", "-q"], ["add", "."], [*author, "commit", "-qm", "The plugin"]):
        subprocess.run(["git", "-C", folder, *arguments], check=True)
    return folder


@pytest.mark.parametrize("packadd", ["packadd", "packadd!"])  # sourced at once, or after init.lua
def test_a_package_suggests_and_has_its_command_and_help(
    program: Program, packadd: str, repository: Path, open_scripted: OpenScripted, script: Script
) -> None:
    load = f"vim.opt.packpath:prepend([[{repository.parents[3]}]])\nvim.cmd('{packadd} midfill')"
    neovim = open_scripted("\n", load=load)
    script.answer("abc")
    neovim.keys("i")
    assert neovim.until_ghost() == "abc"
    neovim.keys("<Esc>")
    assert neovim.api.command_output("echo exists(':Midfill')") == "2"
    assert neovim.api.funcs.getcompletion("midfill-opt", "help")


def test_vim_pack_installs_it(repository: Path, runtime: Path, tmp_path: Path) -> None:
    init = tmp_path / "init.lua"
    init.write_text(
        f"vim.pack.add({{{{ src = 'file://{repository}', name = 'midfill' }}}}, {{ confirm = false }})\n"
        "require('midfill').setup({ cmd = { 'true' } })\n"
    )
    found = "vim.fn.exists(':Midfill'), #vim.api.nvim_get_runtime_file('lua/midfill/ghost.lua', true)"
    with environment(tmp_path, runtime):
        command = [NEWEST, "--headless", "-u", init, "-i", "NONE", f"+lua io.stdout:write({found})", "+qall"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout, "Error" in done.stderr) == ("21", False), done.stderr
