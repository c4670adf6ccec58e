"""Answers a request of the keeper in the index's process: whether a folder is scanned now, and when again."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from lsp_server.context.index.database import IndexWriter, LastScan, index_file, remove_index, remove_unused
from lsp_server.context.index.fitness import unfit, unfit_disk
from lsp_server.context.index.messages import Answer, Request, When
from lsp_server.context.index.scan import Rules, scan, update
from lsp_server.exclusion.exclusion import Exclusion

logger = logging.getLogger(__name__)

_COST_TIMES = 100  # a scan takes at most one hundredth of the time
_LEAST_APART_S = 60.0
_AFTER_LIMIT_S = 24 * 3600.0  # a folder beyond a limit will be so tomorrow
_RECHECK_S = 60.0  # of ignore files, during a scan
_UNFIT_APART_S = 3600.0  # it may become a project
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def answer(request: Request, is_on_battery: Callable[[], bool] | None = None) -> Answer:
    """Bring the index of a folder up to date as the request asks."""
    since = time.process_time()
    folder = Path(request.folder).resolve()
    file = index_file(folder)
    if (problem := unfit(folder, Path.home().resolve())) is not None:
        logger.info("%s is not indexed: %s", folder, problem)
        remove_index(file)
        return Answer(_UNFIT_APART_S, is_unfit=True)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with FileLock(file.with_name(f"{file.name}.lock"), timeout=0):
            return _bring_up_to_date(folder, file, request, since, is_on_battery or _is_on_battery)
    except Timeout:
        return Answer(_LEAST_APART_S, is_busy=True)


def _bring_up_to_date(
    folder: Path, file: Path, request: Request, since: float, is_on_battery: Callable[[], bool]
) -> Answer:
    exclusion = Exclusion([folder.as_uri()], time.monotonic, _RECHECK_S)
    rules = Rules(exclusion.rules_of, unfit_disk)
    try:
        with closing(IndexWriter(file)) as writer:
            last = writer.last_scan()
            if _is_due(request.scan, last, time.time(), is_on_battery):
                work = scan(folder, writer, rules)
                last = LastScan(time.time(), time.process_time() - since, work.is_complete)
                writer.scanned(last)
                remove_unused()
            else:
                work = update(folder, writer, rules, request.files)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in _DAMAGED:
            remove_index(file)  # the next scan builds it anew
        raise
    file.touch()
    again_s = max(_LEAST_APART_S, _wait_s(last, time.time(), "due"))
    return Answer(
        again_s,
        looked_at=work.looked_at,
        checked=work.checked,
        read=len(work.read),
        removed=len(work.removed),
        cpu_s=time.process_time() - since,
    )


def _is_due(when: When, last: LastScan | None, now: float, is_on_battery: Callable[[], bool]) -> bool:
    if when in ("no", "now") or last is None:
        return when != "no"
    return _wait_s(last, now, when) == 0 and not is_on_battery()


def _wait_s(last: LastScan | None, now: float, when: When) -> float:
    """The time until a scan is due; what a window missed while it was closed does not wait for the cost's sake."""
    if last is None or last.finished > now:
        return 0.0
    apart = _AFTER_LIMIT_S if not last.is_complete else 0.0
    apart = max(apart, _LEAST_APART_S, _COST_TIMES * last.cpu_s if when == "due" else 0.0)
    return max(0.0, last.finished + apart - now)


def _is_on_battery() -> bool:
    sensors: Callable[[], Any] | None = getattr(psutil, "sensors_battery", None)  # not on every system
    try:
        battery = sensors() if sensors is not None else None
    except (OSError, ValueError, RuntimeError):  # what a driver says cannot be read
        return False
    return battery is not None and battery.power_plugged is False
