"""Options for loading a model, and the GPUs that it may run on, found without torch."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path

import psutil

from protocol.installation import version_of
from protocol.settings import CoreSettings


@dataclass(frozen=True, slots=True)
class EngineOptions(CoreSettings):
    """The core's settings, and what no setting says; "auto" and 0 choose by model and machine."""

    _: KW_ONLY
    store_budget_bytes: int | None = None  # of KV on the device; None means what `store_mb` says
    host_budget_bytes: int = 4 * 2**30  # of KV in main memory, behind a GPU; at most an eighth of that memory
    cache_folder: Path | None = None  # keeps KV across restarts, and what cores must forget; KV reveals the text
    cache_budget_bytes: int | None = None  # of that KV; None means `disk_mb`
    prefill_chunk: int = 256  # tokens per forward, which bounds how long a request waits; a fast GPU takes more
    batching: bool = True  # requests share forwards, as many as there are slots
    speculation: bool = True  # drafts are verified in one forward
    kernel: bool = True  # the CPU kernel, if available

    @property
    def store_bytes(self) -> int | None:
        """The store's budget on the device; None if it is chosen by the machine."""
        return self.store_mb * 2**20 or None if self.store_budget_bytes is None else self.store_budget_bytes

    @property
    def cache_bytes(self) -> int:
        return self.disk_mb * 2**20 if self.cache_budget_bytes is None else self.cache_budget_bytes


def engine_options(settings: CoreSettings) -> EngineOptions:
    """The options of an engine with these settings that saves nothing on disk."""
    return EngineOptions(**{field.name: getattr(settings, field.name) for field in fields(CoreSettings)})


_ANSWERS_WITHIN_S = 10.0
_DEVICE = re.compile(r"^\s+\w+: .+\(\d+ MiB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A CUDA device as its driver names it, and its memory in bytes."""

    name: str
    total_bytes: int
    free_bytes: int
    capability: tuple[int, int] | None = None
    """Compute capability; None if the driver does not report it."""


def has_gpu_driver() -> bool:
    """Whether a GPU's driver is installed, without which torch finds none."""
    if Path("/dev/kfd").exists():  # AMD's
        return True
    with suppress(OSError):
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        return True
    return False


def has_torch() -> bool:
    """Whether PyTorch is installed, which nothing imports before it is needed."""
    return version_of("torch") is not None


def find_gpus(environment: Mapping[str, str] = os.environ) -> tuple[Gpu, ...]:
    """The CUDA devices that nvidia-smi lists; none if it is not installed or does not answer.

    It reports no memory for a device that shares the machine's.
    """
    program = shutil.which("nvidia-smi", path=environment.get("PATH"))
    if program is None:
        return ()
    answer = _answer([program, "--query-gpu=name,memory.total,memory.free,compute_cap", "--format=csv,noheader,nounits"])
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.splitlines()]
    shared = psutil.virtual_memory()
    return tuple(
        Gpu(name, _bytes(total, shared.total), _bytes(free, shared.available), _capability(capability))
        for name, total, free, capability in rows
    )


def find_llama_server(environment: Mapping[str, str] = os.environ) -> str:
    """The llama-server on the PATH if it lists a GPU; empty if there is none, or it was built for CPUs alone."""
    program = shutil.which("llama-server", path=environment.get("PATH"))
    return program if program and _DEVICE.search(_answer([program, "--list-devices"])) else ""


def _answer(command: Sequence[str]) -> str:
    """The output of a program; empty if it fails, as one whose driver does not answer."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_ANSWERS_WITHIN_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _bytes(mebibytes: str, otherwise: int) -> int:
    return int(mebibytes) * 2**20 if mebibytes.isdigit() else otherwise


def _capability(text: str) -> tuple[int, int] | None:
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
