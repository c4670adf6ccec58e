"""Describes the machine of a run: its processor and accelerator, and whether it multiplies bf16 fast."""

import os
import platform
from pathlib import Path

import torch

_CPU_INFO = Path("/proc/cpuinfo")


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
