"""The program `midfill`: starts `midfill lsp` without loading the command line, and prints errors as one line."""

from __future__ import annotations

import os
import sys

from protocol.errors import MidfillError


def main() -> None:
    """Run the command line; a MidfillError ends it with its message and status."""
    try:
        if sys.argv[1:] == ["lsp"]:
            _serve_editor()
        else:
            from midfill.commands import app

            app(prog_name="midfill")
    except MidfillError as error:
        print(f"midfill: {error}", file=sys.stderr)  # noqa: T201  # for the user
        sys.exit(error.exit_status)


def _serve_editor() -> None:
    """Run `midfill lsp` without options; it skips the imports of the command line, since an editor waits for it."""
    from lsp_server.launch import run_stdio
    from protocol.settings import Settings
    from protocol.settings_sources import with_environment

    run_stdio(with_environment(Settings(), os.environ))
