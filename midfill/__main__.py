"""The program `midfill`, and `python -m midfill`: runs the command line.

It starts `midfill lsp` without loading the command line, and prints errors as one line.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper
from typing import NoReturn

from protocol.errors import BadInput, MidfillError


def main() -> None:
    """Run the command line; a MidfillError or the lack of the engine ends it with one line."""
    if isinstance(sys.stdout, TextIOWrapper):
        # Files and models have characters that a terminal's encoding may lack.
        sys.stdout.reconfigure(errors="replace")
    try:
        if sys.argv[1:] == ["lsp"]:
            _serve_editor()
        else:
            from midfill.commands import app

            app(prog_name="midfill")
    except MidfillError as error:
        _end(str(error), error.exit_status)
    except ModuleNotFoundError as error:
        from midfill.installation import REMEDY, is_of_engine

        if error.name is None or not is_of_engine(error.name):
            raise
        command = " ".join(sys.argv[1:2])
        # With the status of bad input, since the same command would fail again.
        _end(f"`midfill {command}` needs the engine ({error}): {REMEDY}", BadInput.exit_status)


def _end(message: str, status: int) -> NoReturn:
    print(f"midfill: {message}", file=sys.stderr)  # noqa: T201  # for the user
    sys.exit(status)


def _serve_editor() -> None:
    """Run `midfill lsp` without options; it skips the imports of the command line, since an editor waits for it."""
    from lsp_server.launch import run_stdio
    from protocol.settings import Settings
    from protocol.settings_sources import with_environment

    run_stdio(with_environment(Settings(), os.environ))


if __name__ == "__main__":
    main()
