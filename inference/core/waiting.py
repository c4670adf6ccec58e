"""Waits for a core's arguments on stdin, and imports meanwhile what every core needs."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread

import filelock

from protocol.errors import AlreadyServed
from protocol.rendezvous import is_held, runtime_folder


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
