"""The program `midfill`, and `python -m midfill`: runs the command line.

It starts `midfill lsp` without loading the command line, and prints errors as one line.
"""

from __future__ import annotations

import os
import sys
from io import TextIOWrapper

from protocol.installation import run_program

_ENCODING = "MIDFILL_TERMINAL_ENCODING"  # from this process to the one that takes its place


def main() -> None:
    """Run the command line; a MidfillError or the lack of the engine ends it with one line."""
    if sys.getfilesystemencoding() != "utf-8" and sys.platform != "win32" and os.environ.get("PYTHONUTF8") != "1":
        _begin_again_in_utf8()
    encoding = os.environ.pop(_ENCODING, None)
    if isinstance(sys.stdout, TextIOWrapper):
        # Files and models have characters that a terminal's encoding may lack.
        sys.stdout.reconfigure(encoding=encoding, errors="replace")
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr.reconfigure(encoding=encoding)
    run_program(_run, " ".join(["midfill", *sys.argv[1:2]]))


def _begin_again_in_utf8() -> None:
    """Replace this process by one that reads the names of files as UTF-8, as do those that it starts.

    An editor's URIs, git's output and ignore files have names in UTF-8, whatever the locale. In another encoding they
    would not be the names on the disk, or none at all. The terminal keeps its encoding.
    """
    changed = {**os.environ, "PYTHONUTF8": "1", _ENCODING: sys.stdout.encoding if sys.stdout else "utf-8"}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], changed)


def _run() -> None:
    if sys.argv[1:] == ["lsp"]:
        _serve_editor()
    else:
        from midfill.commands import app

        app(prog_name="midfill")


def _serve_editor() -> None:
    """Run `midfill lsp` without options; it skips the imports of the command line, since an editor waits for it.

    A core begins to import first.
    """
    from lsp_server.core_client.waiting import WaitingCore

    is_elsewhere = os.environ.get("MIDFILL_CORE") or os.environ.get("MIDFILL_ENGINE")
    waiting = None if is_elsewhere else WaitingCore.start()
    from lsp_server.launch import run_stdio
    from protocol.settings import Settings
    from protocol.settings_sources import with_environment

    run_stdio(with_environment(Settings(), os.environ), waiting)


if __name__ == "__main__":
    main()
