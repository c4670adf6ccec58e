"""Models for a language server, as lines of JSON: `python -m inference.loading list SETTINGS`, and `download NAME`."""

from __future__ import annotations

import json
import sys

from protocol.errors import BadInput
from protocol.installation import run_program
from protocol.settings import Settings
from protocol.settings_sources import with_json_text


def main() -> None:
    """Print the models of this machine, or a download's progress and result."""
    match sys.argv[1:]:
        case ["list", settings]:
            from inference.loading.choices import choices
            from inference.loading.options import find_gpus

            _report([choice.as_json() for choice in choices(with_json_text(Settings(), settings), find_gpus())])
        case ["download", name]:
            from inference.loading.choices import download_reporting

            download_reporting(name, _report)
        case other:
            raise BadInput(f"expected `list SETTINGS` or `download NAME`, not {other}")


def _report(line: object) -> None:
    print(json.dumps(line), flush=True)  # noqa: T201  # for the language server


if __name__ == "__main__":
    run_program(main, "midfill models")
