"""The device that is proved: a GPU, or for a dry run the simulated one of the tests; times and profiles work on it."""

from __future__ import annotations

import gc
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from proof.runner import Skipped
from torch import Tensor

from inference.backends import cuda


@dataclass(slots=True)
class Card:
    """A device and how to measure on it."""

    device: torch.device
    rounds: int
    simulated: Any = None
    """The simulated device of a dry run, which counts what a profiler would; None on a GPU."""
    _ceilings: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    @property
    def is_real(self) -> bool:
        return self.simulated is None

    def check_triton(self) -> None:
        """Raise Skipped where Triton's kernels cannot run."""
        if not self.is_real:
            raise Skipped("a simulated device does not run Triton")
        if find_spec("triton") is None:
            raise Skipped("without Triton")

    def wait(self) -> None:
        """Wait for all work that is queued."""
        cuda.wait(self.device)

    def free_bytes(self) -> int:
        """Free memory of the device, after freeing what nothing uses and what torch's allocator merely keeps."""
        gc.collect()
        cuda.give_memory_back()
        return cuda.free_bytes(self.device)

    def available_bytes(self) -> int:
        """Those, and what torch's allocator cannot free, since something small lies beside it, but gives out again.

        Unused memory of graphs' pools is not among it: each recording goes on needing it.
        """
        free = self.free_bytes()
        if not self.is_real:
            return free
        segments = [each for each in torch.cuda.memory_snapshot() if each["device"] == self.device.index]
        common = [each for each in segments if each["segment_pool_id"] == (0, 0)]
        return free + sum(each["total_size"] - each["active_size"] for each in common)

    def take_all_but(self, left: int, least: int) -> list[Tensor]:
        """Memory that leaves `left` bytes, and at most about `least` more, to later allocations of this process.

        Allocations take what the device has, and what torch's allocator keeps, until one of `least` bytes is refused.
        """
        kept = torch.empty(left, dtype=torch.uint8, device=self.device)
        size, taken = self.free_bytes(), list[Tensor]()
        while size >= least:
            try:
                taken.append(torch.empty(size, dtype=torch.uint8, device=self.device))
            except torch.OutOfMemoryError:
                size //= 2
        del kept
        self.free_bytes()
        return taken

    def times_s(self, work: Callable[[], object], rounds: int) -> list[float]:
        """Seconds of each call of `work`, to the end of what it queues."""
        times = []
        for _ in range(rounds):
            self.wait()
            started = time.perf_counter()
            work()
            self.wait()
            times.append(time.perf_counter() - started)
        return times

    def median_s(self, work: Callable[[], object], rounds: int | None = None) -> float:
        """The median seconds of a call, after two that do not count."""
        self.times_s(work, 1 if rounds == 1 else 2)
        return statistics.median(self.times_s(work, rounds or self.rounds))

    def ceilings(self, copied_bytes: int, product: int) -> tuple[float, float]:
        """Bytes per second of a copy, read and written, and operations per second of a product in bfloat16."""
        key = copied_bytes, product
        if key not in self._ceilings:
            self._ceilings[key] = self._bandwidth(copied_bytes), self._rate(product)
        return self._ceilings[key]

    def kernels(self, work: Callable[[], object]) -> list[tuple[str, int, float]]:
        """The kernels that a call launches, from a graph too: names, numbers and microseconds, the longest first.

        A simulated device knows their number alone.
        """
        if self.simulated is not None:
            before = self.simulated.kernels
            work()
            return [("simulated", self.simulated.kernels - before, 0.0)]
        from torch._C._autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        work()
        self.wait()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            work()
            self.wait()
        counts: Counter[str] = Counter()
        spent: Counter[str] = Counter()
        for event in profiler.events() or ():
            if event.device_type == DeviceType.CUDA:
                counts[event.name] += 1
                spent[event.name] += event.time_range.elapsed_us()
        return [(name, counts[name], us) for name, us in spent.most_common()]

    def _bandwidth(self, size: int) -> float:
        source = torch.empty(size, dtype=torch.uint8, device=self.device).random_()
        goal = torch.empty_like(source)
        return 2 * size / self.median_s(lambda: goal.copy_(source))

    def _rate(self, side: int) -> float:
        left, right = (torch.empty(side, side, dtype=torch.bfloat16, device=self.device).normal_() for _ in range(2))
        return 2 * side**3 / self.median_s(lambda: left @ right)


@contextmanager
def real_card(setting: str, rounds: int) -> Iterator[Card]:
    """The GPU of this setting, made ready as the core makes it; BadInput if there is none."""
    device = cuda.find_device(setting)
    cuda.use(device)
    # The first product makes cuBLAS's workspace, which stays: in a large block that is free now and then, it would keep
    # all of that from being freed.
    square = torch.ones(16, 16, dtype=torch.bfloat16, device=device)
    square @ square
    del square
    yield Card(device, rounds)


@contextmanager
def simulated_card(rounds: int) -> Iterator[Card]:
    """The simulated device of the tests, on this thread."""
    from tests.inference.simulated_cuda import SimulatedCuda

    torch.set_num_threads(1)  # more only wait for each other in tensors this small
    with SimulatedCuda(total_bytes=2**29) as simulated:
        device = cuda.find_device("cuda")
        cuda.use(device)
        yield Card(device, rounds, simulated)
