"""A core that a language server starts: `python -m inference.core LOG_FILE SETTINGS`, with the settings as JSON.

Without arguments it waits for them on stdin, and imports meanwhile what every core needs.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread

import filelock

from protocol.errors import AlreadyServed, BadInput
from protocol.installation import run_program
from protocol.rendezvous import is_held, runtime_folder
from protocol.settings import Settings, variable_name
from protocol.settings_sources import with_json_text


def main() -> None:
    """Run the core, which ends for a client with other settings once no other client is connected."""
    arguments = sys.argv[1:] or await_arguments()
    if len(arguments) != 2:
        raise BadInput("expected a log file and the settings as JSON")
    log_file, given = arguments
    secret = Settings(engine_key=os.environ.get(variable_name("engine_key"), ""))
    settings = with_json_text(secret, given)
    from inference.core.process import run, serve_options

    run(serve_options(settings, log_file=Path(log_file), replaceable=True))


def await_arguments() -> list[str]:
    """The arguments, once a language server has written them; from then on the log in them is this process's output.

    Ends the process if none are written. AlreadyServed if a core runs, which may be the one that is wanted, or if another
    process waits: only one is needed.
    """
    folder = runtime_folder()
    try:
        with filelock.FileLock(folder / "waiting.lock", timeout=0, mode=0o600):
            if any(is_held(file) for file in folder.glob("core-*.json")):
                raise AlreadyServed("a core runs")
            Thread(target=_import, daemon=True).start()
            written = sys.stdin.buffer.read()
    except filelock.Timeout as error:
        raise AlreadyServed("a core waits already") from error
    if not written:
        os._exit(0)  # an orderly end would stop the thread within torch, which aborts the process
    given = json.loads(written)
    os.environ.update(given["environment"])
    arguments: list[str] = given["arguments"]
    _take_place(Path(arguments[0]))
    return arguments


def _import() -> None:
    with suppress(ImportError):  # which the core raises again, into its log
        from inference.core import process
        from inference.loading.engine import import_what_loading_needs

        del process
        import_what_loading_needs()


def _take_place(log_file: Path) -> None:
    """Be as if started with this log: stdout and stderr go there, stdin is empty, and the folder is its own."""
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, place in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(descriptor, place)
    os.close(log)
    os.close(nothing)
    os.chdir(log_file.parent)


if __name__ == "__main__":
    run_program(main, "midfill core")
