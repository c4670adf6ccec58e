"""Runs a core by the settings, for `midfill core` and for language servers, until it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from inference.loading.options import engine_options
from inference.server.process import ServeOptions, serve
from protocol.errors import BadInput
from protocol.identity import core_settings
from protocol.rendezvous import cache_folder, resolve_engine, resolve_model
from protocol.settings import Settings


def serve_options(settings: Settings, *, separate_users: bool = False, **others: Any) -> ServeOptions:
    """How to serve by these settings; `others` are fields of ServeOptions that no setting decides."""
    engine = replace(
        engine_options(settings),
        model=resolve_model(settings.model),
        engine=resolve_engine(settings.engine),
        cache_folder=cache_folder() if settings.disk_mb else None,
        separate_users=separate_users,
    )
    return ServeOptions(
        engine=engine,
        unload_after_s=settings.unload_after_s or None,
        exit_after_s=settings.exit_after_s or None,
        settings=core_settings(settings),
        speed_folder=cache_folder(),
        **others,
    )


def run(options: ServeOptions, on_published: Callable[[], None] = lambda: None) -> None:
    """Serve, with the log file of the options as stderr; the errors are those of `serve`, and BadInput for the file."""
    if options.log_file is not None:
        log_to(options.log_file)
    if not serve(options, on_published=on_published):
        os._exit(0)  # a normal exit would stop the model's thread within torch, which aborts the process


def log_to(file: Path) -> None:
    """Append what this process writes to stderr to the file; BadInput if it cannot be written."""
    try:
        log = file.open("ab", buffering=0)
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}") from error
    os.dup2(log.fileno(), sys.stderr.fileno())
