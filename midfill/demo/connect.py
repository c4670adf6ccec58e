"""The instructions for connecting an editor, which the demo prints at its end."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rich.syntax import Syntax
from rich.text import Text

_NEOVIM = """\
vim.opt.runtimepath:prepend('{checkout}/nvim')
require('midfill').setup({{
  cmd = {{ '{command}', 'lsp' }},
  keys = {{ accept = '<Tab>' }},
}})"""

_HELIX = """\
[language-server.midfill]
command = "{command}"
args = ["lsp"]

[[language]]
name = "python"
language-servers = ["midfill"]  # beside those that you have there"""

_VS_CODE = """\
make -C {checkout} vsix
code --install-extension {checkout}/vscode-client/midfill.vsix"""

_ANY_CHECKOUT = "/path/to/midfill"


def how_to_connect() -> Text:
    """The lines to put into each editor's configuration."""
    command, checkout = midfill_command(), checkout_folder()
    sections = (
        ("Neovim 0.10 or newer", "in init.lua", _NEOVIM, "lua"),
        ("Helix", "in languages.toml", _HELIX, "toml"),
        ("VS Code", "In a terminal", _VS_CODE, "sh"),
    )
    return Text("\n\n").join(
        _section(name, where, code.format(command=command, checkout=checkout), language)
        for name, where, code, language in sections
    )


def midfill_command() -> str:
    """The command as an editor can find it: its name if it is on the path, else its installed path."""
    if shutil.which("midfill"):
        return "midfill"
    return str(Path(sys.executable).with_name("midfill"))


def checkout_folder() -> str:
    """The checkout that midfill runs from; it holds the extension and the plugin, which the Python package lacks."""
    folder = Path(__file__).parents[2]
    return str(folder) if (folder / "nvim").is_dir() else _ANY_CHECKOUT


def _section(name: str, where: str, code: str, language: str) -> Text:
    lines = Syntax("", language, theme="ansi_dark").highlight(code).split("\n")
    heading = Text.assemble((name, "bold"), (f" {where}", "bright_black"), "\n")
    return heading + Text("\n").join(Text("  ") + line for line in lines)
