"""Owns the processes of a run: their number, their devices and their launch."""

import logging
import os
import sys
from collections.abc import Iterable
from typing import NoReturn

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import DistributedType  # type: ignore[import-untyped]
from torch import nn

from inference.training.allocator import keep_freed_memory
from inference.training.errors import OptionError

_SUPPORTED = (
    DistributedType.NO,
    DistributedType.MULTI_CPU,
    DistributedType.MULTI_GPU,
    DistributedType.MULTI_XPU,
    DistributedType.MULTI_NPU,
)


def is_launched() -> bool:
    """Whether a launcher started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def join_processes(mixed_precision: str | None = None, *, cpu: bool = False) -> Accelerator:
    """Join the processes of the run that `accelerate launch`, torchrun or `launch` started.

    Without an accelerator, or with `cpu`, several processes share the cores and communicate over gloo. The precision is
    as in `TrainingOptions`.

    Raises:
        OptionError: the launcher requested a sharded model (FSDP, DeepSpeed), or the device does not support the
            precision.
    """
    keep_freed_memory()
    # It warns whenever it saves tied weights once, which is correct.
    logging.getLogger("accelerate.utils.other").setLevel(logging.ERROR)
    cpu = cpu or (is_launched() and not torch.accelerator.is_available())
    try:
        accelerator = Accelerator(mixed_precision=mixed_precision or "no", cpu=cpu)
    except ValueError as error:
        raise OptionError(f"mixed precision {mixed_precision}: {error}") from error
    if accelerator.distributed_type not in _SUPPORTED:
        raise OptionError(f"launched for {accelerator.distributed_type.value}, expected data parallel processes")
    return accelerator


def launch(processes: int) -> NoReturn:
    """Become the launcher of `processes` processes of this command, each with its share of the cores.

    `accelerate launch` starts several processes on GPUs only, by torchrun. This calls torchrun directly; accelerate
    reads torchrun's environment variables.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes))
    os.execv(sys.executable, (sys.executable, *torchrun, "--no-python", *sys.orig_argv))


def average_gradients(accelerator: Accelerator, parameters: Iterable[nn.Parameter]) -> None:
    """Replace every gradient by its mean over the processes.

    Call it once per step, after all of its windows. It uses the gradients' own precision: DistributedDataParallel would
    use the weights' bf16, and add its prefix to the names in the checkpoint.
    """
    if accelerator.num_processes > 1:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad = accelerator.reduce(parameter.grad, reduction="mean")
