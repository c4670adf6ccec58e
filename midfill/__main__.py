"""The program `midfill`, and `python -m midfill`: checks that its packages are its own, and runs the command line.

It starts `midfill lsp` without loading the command line, and prints errors as one line.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from io import TextIOWrapper
from pathlib import Path

PACKAGES = ("inference", "kv_store", "lsp_server", "protocol")
_HOME = Path(__file__).resolve().parents[1]


def foreign_package() -> str | None:
    """The problem, if Python would import another distribution's package in place of ours; else None."""
    for name in PACKAGES:
        spec = find_spec(name)
        origin = None if spec is None else spec.origin
        if origin is None or Path(origin).resolve().parents[1] != _HOME:
            where = "is missing" if origin is None else f"is imported from {Path(origin).parent}"
            return (
                f"the package {name!r} {where}, not from {_HOME}: another distribution or PYTHONPATH hides it. "
                "Install midfill in a virtual environment of its own"
            )
    return None


def main() -> None:
    """Run the command line; a foreign package, a MidfillError or the lack of the engine ends it with one line."""
    problem = foreign_package()
    if problem is not None:
        print(f"midfill: {problem}", file=sys.stderr)  # noqa: T201  # for the user
        sys.exit(2)
    from protocol.installation import run_program  # which is ours by now

    if isinstance(sys.stdout, TextIOWrapper):
        # Files and models have characters that a terminal's encoding may lack.
        sys.stdout.reconfigure(errors="replace")
    run_program(_run, " ".join(["midfill", *sys.argv[1:2]]))


def _run() -> None:
    if sys.argv[1:] == ["lsp"]:
        _serve_editor()
    else:
        from midfill.commands import app

        app(prog_name="midfill")


def _serve_editor() -> None:
    """Run `midfill lsp` without options; it skips the imports of the command line, since an editor waits for it."""
    from lsp_server.launch import run_stdio
    from protocol.settings import Settings
    from protocol.settings_sources import with_environment

    run_stdio(with_environment(Settings(), os.environ))


if __name__ == "__main__":
    main()
