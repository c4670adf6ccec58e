"""The limits of the core's process: open files, and the size of its log."""

from __future__ import annotations

import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from pythonjsonlogger.json import JsonFormatter

MOST_FILES = 65_536
FILES_FOR_OTHERS = 128
"""Descriptors that connections leave to the model, the store and the log."""
MAX_LOG_BYTES = 2 * 2**20
"""A log file of this size is renamed to FILE.1, and a new one begins."""
_FIELDS = "levelname,name,message"  # of a JSON line, besides its time

log = logging.getLogger(__name__)


def raise_file_limit() -> int:
    """Raise the limit of open files as far as the system allows, and return the most connections it permits."""
    if sys.platform == "win32":  # no such limit
        return MOST_FILES
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            log.warning("cannot raise the limit of %d open files to %d: %s", soft, wanted, error)
        else:
            soft = wanted
    limit = MOST_FILES if soft == resource.RLIM_INFINITY else soft
    return max(limit // 2, limit - FILES_FOR_OTHERS)


def configure_log(file: Path | None, *, as_json: bool = False) -> None:
    """Log to stderr, or to `file`, which is rotated at MAX_LOG_BYTES with one predecessor."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if file is not None:
        handler = RotatingFileHandler(file, maxBytes=MAX_LOG_BYTES, backupCount=1, encoding="utf-8")
    plain = logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter(_FIELDS, style=",", timestamp=True) if as_json else plain)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # lower levels report every request
    uvicorn_log = logging.getLogger("uvicorn.error")
    uvicorn_log.setLevel(logging.WARNING)  # lower levels report every connection, with its path
    uvicorn_log.addFilter(_is_not_a_refusal)


def _is_not_a_refusal(record: logging.LogRecord) -> bool:
    """False for the error that uvicorn logs after a refused WebSocket, although it has sent the refusal."""
    return record.msg != "ASGI callable returned without completing handshake."
