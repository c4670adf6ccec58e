"""The machine of a run: its device and precision, memory that malloc keeps, and the signals that stop it."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import Thread
from types import FrameType

import torch

from midfill_lab.training.options import OptionError, Precision

_CPU_INFO = Path("/proc/cpuinfo")
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # of malloc.h
_TOP_PAD_BYTES = 256 * 2**20
_DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
ENDED = 130  # as a shell has it for what Ctrl-C ended
_SHOW_CURSOR = "\033[?25h"


def this_machine() -> str:
    """What of the machine that this process runs on determines the speed of a run."""
    cores = f"{os.cpu_count() or 1} cores of {_processor()}"
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else cores
    return f"{device} (torch {torch.__version__})"


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


class Device:
    """What a run computes on, and in which precision.

    Attributes:
        torch: the device, as torch names it.
        scaler: scales the loss in fp16, and does nothing in other precisions.
    """

    def __init__(self, device: torch.device, precision: Precision = "no") -> None:
        self.torch = device
        self._dtype = _DTYPES.get(precision)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    def precision(self) -> AbstractContextManager[object]:
        """The context in which a model of float32 weights computes in the run's precision."""
        return nullcontext() if self._dtype is None else torch.autocast(self.torch.type, self._dtype)


def open_device(precision: Precision | None = None, *, cpu: bool = False) -> Device:
    """The device for a run in this process, whose malloc keeps freed memory from now on.

    The precision is as in `TrainingOptions`.

    Raises:
        OptionError: the device does not support the precision, or a launcher started this process as one of several.
    """
    if (count := int(os.environ.get("WORLD_SIZE", "1"))) > 1:
        raise OptionError(f"a training runs in one process, on one device: start it alone, not as one of {count}")
    device = choose_device(cpu=cpu)
    if precision == "fp16" and device.type in ("cpu", "mps"):
        raise OptionError(f"mixed precision fp16 needs a GPU, and the device is {device.type}")
    if precision == "bf16" and device.type == "cuda" and not multiplies_bf16(device):
        raise OptionError(f"mixed precision bf16: {torch.cuda.get_device_name(device)} does not support it")
    keep_freed_memory()
    return Device(device, precision or "no")


def choose_device(*, cpu: bool = False) -> torch.device:
    """The accelerator of this machine; the CPU where there is none, or with `cpu`."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() and not cpu else None
    return found or torch.device("cpu")


@contextmanager
def stops_on_signals(heard: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """A function that tells whether a signal to stop has arrived; another thread calls `heard` at the first.

    A second Ctrl-C ends the process at once, even within a long computation; checkpoints stay whole.
    """
    received: list[int] = []

    def receive(number: int, _: FrameType | None) -> None:
        received.append(number)

    # Python runs handlers between two steps of the interpreter, which may be minutes apart while torch computes. The
    # system's handler itself writes to the wake-up descriptor.
    inbox, wake_up = socket.socketpair()
    wake_up.setblocking(False)
    watcher = Thread(target=_watch, args=(inbox, heard), daemon=True)
    watcher.start()
    handlers = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    before = signal.set_wakeup_fd(wake_up.fileno(), warn_on_full_buffer=False)
    try:
        yield lambda: bool(received)
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        wake_up.close()
        watcher.join()
        inbox.close()


def _watch(inbox: socket.socket, heard: Callable[[], None]) -> None:
    """Read signal numbers until the other end closes."""
    received = 0
    while numbers := inbox.recv(1):
        if numbers[0] not in (signal.SIGINT, signal.SIGTERM):
            continue
        received += 1
        if received == 1:
            heard()
        elif numbers[0] == signal.SIGINT:
            if sys.stdout.isatty():
                os.write(1, _SHOW_CURSOR.encode())
            os._exit(ENDED)
