"""Describes the machine of a run, whether it multiplies bf16 fast, and keeps its memory at hand."""

import ctypes
import os
import platform
from dataclasses import dataclass
from pathlib import Path

import torch

_CPU_INFO = Path("/proc/cpuinfo")
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # of malloc.h
_TOP_PAD_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Machine:
    """The properties of a machine that determine the speed of a run."""

    processor: str
    cores: int
    accelerator: str | None
    torch: str

    def __str__(self) -> str:
        device = self.accelerator or f"{self.cores} cores of {self.processor}"
        return f"{device} (torch {self.torch})"


def this_machine() -> Machine:
    """The machine that this process runs on."""
    accelerator = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return Machine(_processor(), os.cpu_count() or 1, accelerator, torch.__version__)


def _processor() -> str:
    """The processor's marketing name on Linux, else the platform's name for it."""
    if _CPU_INFO.is_file():
        for line in _CPU_INFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def multiplies_bf16(device: torch.device) -> bool:
    """Whether a device multiplies bf16 fast. Old GPUs and CPUs without AVX-512 take many times float32's time."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return device.type != "cpu" or torch.backends.cpu.get_cpu_capability().startswith("AVX512")


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
