"""The program `midfill`: starts `midfill lsp` without loading the command line, and prints errors as one line."""

from __future__ import annotations

import os
import sys

from protocol.errors import BadInput, MidfillError


def main() -> None:
    """Run the command line; a MidfillError, or the lack of the engine, ends it with its message and status."""
    try:
        if sys.argv[1:] == ["lsp"]:
            _serve_editor()
        else:
            from midfill.commands import app

            app(prog_name="midfill")
    except MidfillError as error:
        print(f"midfill: {error}", file=sys.stderr)  # noqa: T201  # for the user
        sys.exit(error.exit_status)
    except ModuleNotFoundError as error:
        from midfill.installation import REMEDY, is_of_engine

        if error.name is None or not is_of_engine(error.name):
            raise
        command = " ".join(sys.argv[1:2])
        print(f"midfill: `midfill {command}` needs the engine ({error}): {REMEDY}", file=sys.stderr)  # noqa: T201
        sys.exit(BadInput.exit_status)  # the same command would fail again


def _serve_editor() -> None:
    """Run `midfill lsp` without options; it skips the imports of the command line, since an editor waits for it."""
    from lsp_server.launch import run_stdio
    from protocol.settings import Settings
    from protocol.settings_sources import with_environment

    run_stdio(with_environment(Settings(), os.environ))
