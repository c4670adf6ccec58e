"""A core that a language server starts: `python -m inference.core LOG_FILE SETTINGS`, with the settings as JSON.

Without arguments it waits for them: `inference.core.waiting`.
"""

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
    arguments = sys.argv[1:]
    if not arguments:
        from inference.core.waiting import await_arguments

        arguments = await_arguments()
    if len(arguments) != 2:
        raise BadInput("expected a log file and the settings as JSON")
    log_file, given = arguments
    secret = Settings(engine_key=os.environ.get(variable_name("engine_key"), ""))
    settings = with_json_text(secret, given)
    from inference.core.process import run, serve_options

    run(serve_options(settings, log_file=Path(log_file), replaceable=True))


if __name__ == "__main__":
    run_program(main, "midfill core")
