"""When Python looks for garbage: while nobody waits, and not in the middle of a keystroke, which it would hold up."""

from __future__ import annotations

import ctypes
import gc
import os

# So many new objects are looked through at once where no rest comes; Python's own 700 are those of fifteen keystrokes.
_WITHOUT_REST = 50_000
# After so many of what is new, one of all that was not there when everything was loaded.
_YOUNG_COLLECTIONS = 10
_PYTHONS_OWN = gc.get_threshold()


def keep_what_is_loaded() -> None:
    """Never look again at what there is now, and at what comes only at a rest, or where very much comes before one."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_WITHOUT_REST)


def collect_what_is_new() -> None:
    """Somebody rests: collect what is new, and now and then what has outlived earlier rests; some milliseconds."""
    gc.collect(2 if gc.get_count()[2] > _YOUNG_COLLECTIONS else 1)


def collect_all() -> None:
    """Collect everything, also what was loaded, and go on as Python does by itself."""
    gc.unfreeze()
    gc.set_threshold(*_PYTHONS_OWN)
    gc.collect()


def return_free_memory() -> None:
    """Return freed memory to the operating system, where the C library would keep it for itself (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(ctypes.c_size_t(0))
