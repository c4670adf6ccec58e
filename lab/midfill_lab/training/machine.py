"""The machine of a run: its processes and their devices, fast bf16, memory that malloc keeps, and signals to stop."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import NoReturn

import torch
from torch import Tensor, distributed, nn

from midfill_lab.training.options import OptionError, Precision

_CPU_INFO = Path("/proc/cpuinfo")
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # of malloc.h
_TOP_PAD_BYTES = 256 * 2**20
_DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
ENDED = 130  # as a shell has it for what Ctrl-C ended
_SHOW_CURSOR = "\033[?25h"


def this_machine() -> str:
    """What of the machine that this process runs on determines the speed of a run."""
    if torch.cuda.is_available():
        device = torch.cuda.get_device_name()
    else:
        device = f"{os.cpu_count() or 1} cores of {_processor()}"
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


class Processes:
    """The processes of a run, as this one of them sees them.

    Attributes:
        device: the one that this process computes on.
        count: how many there are.
        rank: which one this is; 0 is the main one.
        scaler: scales the loss in fp16, and does nothing in other precisions.
    """

    def __init__(self, device: torch.device, precision: Precision = "no", count: int = 1, rank: int = 0) -> None:
        self.device, self.count, self.rank = device, count, rank
        self._dtype = _DTYPES.get(precision)
        self.scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def precision(self) -> AbstractContextManager[object]:
        """The context in which a model of float32 weights computes in the run's precision."""
        return nullcontext() if self._dtype is None else torch.autocast(self.device.type, self._dtype)

    def mean(self, *figures: float) -> list[float]:
        """The means over the processes: equal figures make all of them end at the same step."""
        means: list[float] = self._averaged(torch.tensor(figures, dtype=torch.float64)).tolist()
        return means

    def average_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its mean over the processes.

        Call it once per step, after all of its windows. It uses the gradients' own precision: DistributedDataParallel
        would use the weights' bf16, and add its prefix to the names in the checkpoint.
        """
        if self.count > 1:
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.grad = self._averaged(parameter.grad)

    def wait(self) -> None:
        """Wait until all processes have come here."""
        self.mean(0.0)

    def leave(self) -> None:
        """Leave the run; this process can join another."""
        if self.count > 1:
            distributed.destroy_process_group()

    def _averaged(self, tensor: Tensor) -> Tensor:
        if self.count == 1:
            return tensor
        total = tensor.to(self.device, torch.float32)
        distributed.all_reduce(total)
        return total / self.count


def is_launched() -> bool:
    """Whether a launcher started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def join_processes(precision: Precision | None = None, *, cpu: bool = False) -> Processes:
    """Join the processes of the run that torchrun or `launch` started.

    Without an accelerator, or with `cpu`, several processes share the cores and communicate over gloo. The precision is
    as in `TrainingOptions`.

    Raises:
        OptionError: the device does not support the precision.
    """
    keep_freed_memory()
    rank, count = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = choose_device(cpu=cpu)
    if device.type != "cpu" and count > 1:
        device = torch.device(device.type, int(os.environ.get("LOCAL_RANK", "0")))
        torch.accelerator.set_device_index(device)
    if precision == "fp16" and device.type in ("cpu", "mps"):
        raise OptionError(f"mixed precision fp16 needs a GPU, and the device is {device.type}")
    if precision == "bf16" and device.type == "cuda" and not multiplies_bf16(device):
        raise OptionError(f"mixed precision bf16: {torch.cuda.get_device_name(device)} does not support it")
    if count > 1:
        distributed.init_process_group()
    return Processes(device, precision or "no", count, rank)


def choose_device(*, cpu: bool = False) -> torch.device:
    """The accelerator of this machine; the CPU where there is none, or with `cpu`."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() and not cpu else None
    return found or torch.device("cpu")


def launch(processes: int) -> NoReturn:
    """Become the launcher of `processes` processes of this command, each with its share of the cores."""
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes))
    os.execv(sys.executable, (sys.executable, *torchrun, "--no-python", *sys.orig_argv))


@contextmanager
def stops_on_signals(*, again: bool, heard: Callable[[], None] = lambda: None) -> Iterator[Callable[[], bool]]:
    """A function that tells whether a signal to stop has arrived; another thread calls `heard` at the first.

    If `again`, a second Ctrl-C ends the process at once, even within a long computation; checkpoints stay whole. With
    several processes `again` must be False: each receives one Ctrl-C from the terminal and one from its launcher.
    """
    received: list[int] = []

    def receive(number: int, _: FrameType | None) -> None:
        received.append(number)

    # Python runs handlers between two steps of the interpreter, which may be minutes apart while torch computes. The
    # system's handler itself writes to the wake-up descriptor.
    inbox, wake_up = socket.socketpair()
    wake_up.setblocking(False)
    watcher = Thread(target=_watch, args=(inbox, again, heard), daemon=True)
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


def _watch(inbox: socket.socket, again: bool, heard: Callable[[], None]) -> None:
    """Read signal numbers until the other end closes."""
    received = 0
    while numbers := inbox.recv(1):
        if numbers[0] not in (signal.SIGINT, signal.SIGTERM):
            continue
        received += 1
        if received == 1:
            heard()
        elif again and numbers[0] == signal.SIGINT:
            if sys.stdout.isatty():
                os.write(1, _SHOW_CURSOR.encode())
            os._exit(ENDED)
