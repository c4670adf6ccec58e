"""A core that a language server starts: `python -m inference.core LOG_FILE SETTINGS`, with the settings as JSON."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from protocol.errors import BadInput
from protocol.installation import run_program
from protocol.settings import Settings, variable_name
from protocol.settings_sources import with_json_text


def main() -> None:
    """Run the core, which ends for a client with other settings once no other client is connected."""
    if len(sys.argv) != 3:
        raise BadInput("expected a log file and the settings as JSON")
    secret = Settings(engine_key=os.environ.get(variable_name("engine_key"), ""))
    settings = with_json_text(secret, sys.argv[2])
    from inference.core.process import run, serve_options

    run(serve_options(settings, log_file=Path(sys.argv[1]), replaceable=True))


if __name__ == "__main__":
    run_program(main, "midfill core")
