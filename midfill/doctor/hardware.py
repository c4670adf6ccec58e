"""Examines the machine: installed packages, processor features, GPUs, free memory and disk."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path

import psutil

from inference.backends.cpu.threads import usable_threads
from inference.loading.gpus import Gpu
from midfill.doctor.findings import Section
from midfill.installation import ENGINE, REMEDY, missing, version_of
from protocol.settings import Settings
from protocol.sizes import megabytes

_SHOWN = ("midfill", "torch", "transformers", "tokenizers", "safetensors", "pygls", "lsprotocol", "websockets")
_CPU_FEATURES = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_bf16": "AVX-512 bf16",
    "amx_bf16": "AMX bf16",
    "asimd": "NEON",
    "bf16": "bf16",
}
_LITTLE_DISK = 1e9


def installed(settings: Settings) -> Section:
    """The versions of midfill and its packages; a missing one is a problem, the engine's if a core here needs them."""
    facts = [("Python", f"{platform.python_version()} ({sys.executable})")]
    facts += [(name, version_of(name) or "missing") for name in _SHOWN]
    problems = [f"the package {name} is missing: run `{sys.executable} -m pip install {name}`" for name in missing()]
    if not settings.core and (absent := missing(ENGINE)):
        problems.append(
            f"a core on this machine needs the engine, and {', '.join(absent)} are not installed: {REMEDY}, or name "
            "a core on another machine with --core"
        )
    return Section("installed", tuple(facts), tuple(problems))


def hardware(gpus: tuple[Gpu, ...]) -> Section:
    """Processor, GPUs, memory and disk."""
    memory = psutil.virtual_memory()
    disk = shutil.disk_usage(Path.home())
    facts = [
        ("system", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        (
            "processor",
            f"{usable_threads()} of {os.cpu_count()} threads usable, {', '.join(cpu_features()) or 'features unknown'}",
        ),
        ("memory", f"{megabytes(memory.available)} free of {megabytes(memory.total)}"),
        ("disk", f"{megabytes(disk.free)} free in {Path.home()}"),
    ]
    facts += [
        (f"GPU {number}", f"{gpu.name}, {megabytes(gpu.free_bytes)} free of {megabytes(gpu.total_bytes)}")
        for number, gpu in enumerate(gpus)
    ]
    if not gpus:
        facts.append(("GPU", "none found"))
    problems = [f"only {megabytes(disk.free)} are free on the disk of {Path.home()}: make room"]
    return Section("machine", tuple(facts), tuple(problems if disk.free < _LITTLE_DISK else ()))


def cpu_features(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, ...]:
    """The relevant processor features, from Linux's cpuinfo; empty if the file does not exist."""
    if not cpuinfo.is_file():
        return ()
    flags: set[str] = set()
    for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, values = line.partition(":")
        if name.strip() in ("flags", "Features"):
            flags.update(values.split())
            break
    return tuple(shown for flag, shown in _CPU_FEATURES.items() if flag in flags)
