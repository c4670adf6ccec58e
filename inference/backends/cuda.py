"""Wraps CUDA: devices by number, memory, capability, graphs, and the check for a lost context.

All other modules reach a GPU only through tensors on a `torch.device`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from protocol.errors import BadInput

Replay = Callable[[], object]
RESERVED_SHARE = 1 / 64
"""Of a GPU's memory: stays free of what only saves time. Libraries, kernels loaded late and other programs take it."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A computation over static buffers; `replay` repeats it, and `nbytes` of the GPU's memory went for it."""

    replay: Replay
    nbytes: int


Recorder = Callable[[Callable[[], None]], Recording]
"""Records a computation over static buffers, which computes it once before, and once after."""


def find_device(setting: str) -> torch.device:
    """The device of the setting `auto`, `cpu`, `cuda`, `cuda:N` or `mps`; BadInput, with the setting, if missing.

    A GPU always has its number: CUDA's functions refuse `cuda` alone, and tensors never report it.
    """
    if setting == "auto":
        setting = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(setting)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda", "mps"):
        raise BadInput(f"unknown device {setting!r}: choose auto, cpu, cuda, cuda:N or mps")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise BadInput(f"device {setting!r} is not available: torch finds no Metal")
    return _numbered(device) if device.type == "cuda" else device


def use(device: torch.device) -> None:
    """Make the GPU this thread's current one: streams and graphs are the current device's, thread by thread.

    In this process cuDNN computes no attention from now on. Torch prefers it on GPUs since Hopper, and it builds a
    plan, which takes longer than a token, for each pair of numbers of new and of visible tokens: ours hardly repeat.
    """
    torch.cuda.set_device(device)
    torch.backends.cuda.enable_cudnn_sdp(False)


def free_bytes(device: torch.device) -> int:
    """Free bytes of the GPU's memory."""
    free, _ = torch.cuda.mem_get_info(device)
    return free


def spare_bytes(device: torch.device) -> int:
    """Free bytes of the GPU's memory beyond those that stay free; negative if other programs have taken them."""
    free, total = torch.cuda.mem_get_info(device)
    return free - int(total * RESERVED_SHARE)


def capability(device: torch.device) -> tuple[int, int]:
    """The compute capability, as (major, minor)."""
    return torch.cuda.get_device_capability(device)


def name(device: torch.device) -> str:
    """The GPU's name by its maker."""
    return torch.cuda.get_device_name(device)


def wait(device: torch.device) -> None:
    """Wait until the GPU has finished all queued work; raises the errors of that work."""
    torch.cuda.synchronize(device)


def give_memory_back() -> None:
    """Free the memory that torch's allocators cache: the GPU's, and pinned main memory."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        _empty_host_cache()


def is_lost(device: torch.device) -> bool:
    """Whether this process can no longer use the GPU.

    CUDA recovers from some errors. After others (an illegal access, a failed launch, a device that fell off the bus)
    every later call fails too, including waits, until the process ends.
    """
    try:
        wait(device)
    except RuntimeError:
        return True
    return False


def graph_recorder() -> Recorder:
    """Captures computations as CUDA graphs, each after the warm-up on another stream that PyTorch requires.

    The graphs share one memory pool, which with int8 weights holds a whole widened matrix: they are replayed one at a
    time and keep nothing in the pool between replays. A graph is replayed once, which loads it onto the GPU, before its
    memory is measured; torch cannot see that memory, since the driver allocates it.
    """
    device = torch.device("cuda", torch.cuda.current_device())
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def record(compute: Callable[[], None]) -> Recording:
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(stream):
                compute()
        finally:  # also after an error: it leaves partial writes
            torch.cuda.current_stream().wait_stream(stream)
        before = free_bytes(device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            compute()
        graph.replay()
        wait(device)
        return Recording(graph.replay, max(0, before - free_bytes(device)))

    return record


def _empty_host_cache() -> None:
    """Free unused pinned memory; torch up to 2.11 has a function for it only under an internal name."""
    if hasattr(torch.accelerator, "empty_host_cache"):
        torch.accelerator.empty_host_cache()
    elif hasattr(torch._C, "_host_emptyCache"):
        torch._C._host_emptyCache()


def _numbered(device: torch.device) -> torch.device:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise BadInput(f"device {str(device)!r} is not available: torch finds no CUDA")
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= count:
        there = ", ".join(f"cuda:{number}" for number in range(count))
        raise BadInput(f"device {str(device)!r} is not available: this machine has {there}")
    return torch.device("cuda", index)
