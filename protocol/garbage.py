"""Schedules Python's garbage collection: at rest, so that it delays no keystroke."""

from __future__ import annotations

import ctypes
import gc
import os

# New objects that trigger a collection without a rest; Python's default of 700 equals fifteen keystrokes.
_WITHOUT_REST = 50_000
# Middle-generation collections before a collection of everything created since loading.
_YOUNG_COLLECTIONS = 10
_PYTHONS_OWN = gc.get_threshold()


def keep_what_is_loaded() -> None:
    """Exclude existing objects from collection; collect new ones only at rest, or once there are very many."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_WITHOUT_REST)


def expect_rest() -> None:
    """Collect only once there are very many new objects; `keep_what_is_loaded` is for the next rest, since it takes 0.1 s."""
    gc.set_threshold(_WITHOUT_REST)


def collect_what_is_new() -> None:
    """Collect new objects, and at intervals those that survived earlier rests: some milliseconds, at rest."""
    gc.collect(2 if gc.get_count()[2] > _YOUNG_COLLECTIONS else 1)


def collect_all() -> None:
    """Collect everything, including what was loaded, and restore Python's default schedule."""
    gc.unfreeze()
    gc.set_threshold(*_PYTHONS_OWN)
    gc.collect()


def return_free_memory() -> None:
    """Return freed memory to the operating system if the C library would keep it (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(ctypes.c_size_t(0))
