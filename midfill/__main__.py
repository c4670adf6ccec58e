"""The command `midfill`, and `python -m midfill`: checks that its packages are its own, and runs the command line."""

from __future__ import annotations

import sys
from importlib.util import find_spec
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
    """Run the command line, or end with status 2 and the reason."""
    problem = foreign_package()
    if problem is not None:
        print(f"midfill: {problem}", file=sys.stderr)  # noqa: T201 - nothing else is imported yet
        sys.exit(2)
    from midfill.cli import main as run

    run()


if __name__ == "__main__":
    main()
