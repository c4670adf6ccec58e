"""Owns the processes of a run: their launch, their devices and precision, and what they tell each other."""

import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import NoReturn

import torch
from torch import Tensor, distributed, nn

from midfill_lab.training.allocator import keep_freed_memory
from midfill_lab.training.errors import OptionError
from midfill_lab.training.hardware import multiplies_bf16
from midfill_lab.training.options import Precision

_DTYPES: dict[Precision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


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
