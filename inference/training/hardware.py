"""Describes the machine of a run: its processor and accelerator, and whether it multiplies bf16 fast."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import torch

_CPU_INFO = Path("/proc/cpuinfo")


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
