"""Sets how glibc's malloc treats what is freed, so that training steps do not wait for new pages."""

import ctypes
import platform

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # of malloc.h
_TOP_PAD_BYTES = 256 * 2**20


def keep_freed_memory() -> None:
    """Make glibc's malloc keep what is freed; does nothing elsewhere.

    By default it returns large blocks to the system at once, so that every step gets its activations as new pages,
    which the kernel has to clear: a third of a step of 135M parameters on two cores. The heap grows slowly then, since
    blocks of other sizes fit badly into what is free: see `return_freed_memory`.
    """
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)
        libc.mallopt(_M_TOP_PAD, _TOP_PAD_BYTES)


def return_freed_memory() -> None:
    """Return what is free to the system for once; does nothing without glibc."""
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
