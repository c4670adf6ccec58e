"""The doctor's findings, and those that take no engine: packages, machine, folders, settings."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.backends.cpu.library import usable_threads
from inference.loading.main_memory import main_memory
from inference.loading.options import Gpu
from lsp_server.context.index.database import index_folder
from lsp_server.usage.statistics import statistics_file
from protocol.errors import BadInput, BadSettings
from protocol.installation import ENGINE, REMEDY, TORCH, TORCH_REMEDY, missing, version_of
from protocol.messages import megabytes
from protocol.rendezvous import cache_folder, runtime_folder
from protocol.settings import SETTINGS, Settings, json_name, option_name, variable_name
from protocol.settings_sources import read_environment

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
_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Section:
    """The facts about one subject by name, and its problems; each problem names its remedy.

    `minor` are facts that are seldom looked for: the terminal shows them on request.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    problems: tuple[str, ...] = ()
    minor: tuple[tuple[str, str], ...] = ()


def as_json(sections: Iterable[Section]) -> dict[str, Any]:
    """The findings as a JSON object."""
    sections = tuple(sections)
    problems = [problem for section in sections for problem in section.problems]
    return {
        "ok": not problems,
        "problems": problems,
        "sections": {section.title: dict((*section.facts, *section.minor)) for section in sections},
    }


def installed(settings: Settings) -> Section:
    """The versions of midfill and its packages; a missing one is a problem, the engine's if a core here needs them."""
    python = f"{platform.python_version()} ({sys.executable})"
    midfill, *others = [(name, version_of(name) or "not installed") for name in _SHOWN]
    problems = [f"the package {name} is missing: run `{sys.executable} -m pip install {name}`" for name in missing()]
    if not settings.core and (absent := missing(ENGINE)):
        problems.append(
            f"a core on this machine needs the engine, and {', '.join(absent)} are not installed: {REMEDY}, or name "
            "a core on another machine with --core"
        )
    return Section("installed", (midfill, ("Python", python)), tuple(problems), tuple(others))


def hardware(gpus: tuple[Gpu, ...]) -> Section:
    """Processor, GPUs, memory and disk."""
    memory = main_memory()
    home = _existing(Path.home())
    disk = shutil.disk_usage(home)
    facts = [
        ("system", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        (
            "processor",
            f"{usable_threads()} of {os.cpu_count()} threads usable, {', '.join(cpu_features()) or 'features unknown'}",
        ),
        ("memory", f"{megabytes(memory.available)} free of {megabytes(memory.total)}"),
        ("disk", f"{megabytes(disk.free)} free in {home}"),
    ]
    absent = missing(TORCH)
    unused = f"; unused, since {', '.join(absent)} are not installed: {TORCH_REMEDY}" if absent else ""
    facts += [
        (f"GPU {number}", f"{gpu.name}, {megabytes(gpu.free_bytes)} free of {megabytes(gpu.total_bytes)}{unused}")
        for number, gpu in enumerate(gpus)
    ]
    if not gpus:
        facts.append(("GPU", "none found"))
    problems = [f"only {megabytes(disk.free)} are free on the disk of {home}: make room"]
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


def folders(settings: Settings) -> Section:
    """Each folder or file with its size, and which cannot be written; docs/troubleshooting.md says how to remove them."""
    facts = [("KV cache", _sized(cache_folder())), ("statistics", str(statistics_file()))]
    if not missing(ENGINE):
        from huggingface_hub.constants import HF_HUB_CACHE

        facts.append(("downloaded models", f"{HF_HUB_CACHE} (shared with all programs that use the Hugging Face hub)"))
    try:
        facts.append(("cores and logs", f"{runtime_folder()} (token, addresses, core-*.log)"))
    except BadInput:
        facts.append(("cores and logs", "not usable: see core"))
    on_disk = settings.disk_mb > 0 and not settings.core
    indexed = settings.other_files and not {"definitions", "usages"}.isdisjoint(settings.context_sources)
    kept = (
        (on_disk, cache_folder(), "no KV survives its core", "name another in MIDFILL_CACHE_DIR, or set diskMb to 0"),
        (indexed, index_folder(), "no signature of another file is found", "or set otherFiles to false"),
        (settings.statistics, statistics_file().parent, "nothing is counted", "or set statistics to false"),
    )
    problems = (
        f"{what}, since {folder} cannot be written: make it writable, {else_}"
        for is_wanted, folder, what, else_ in kept
        if is_wanted and not _is_writable(folder)
    )
    return Section("files", (), tuple(problems), tuple(facts))


def _is_writable(folder: Path) -> bool:
    """Whether files can be made in this folder, which may be yet to create."""
    existing = _existing(folder)
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that exists: a service's user may have no home."""
    return next(each for each in (path, *path.parents) if os.path.lexists(each))


def _sized(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder}, not created yet"
    size = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # a running core has just removed it
            size += file.stat().st_size if file.is_file() else 0
    return f"{folder}, {megabytes(size)}"


def settings_in_force(settings: Settings, environment: Mapping[str, str], refused: Sequence[BadSettings]) -> Section:
    """Every setting with its value and origin, and the refused variables; defaults are minor. Secrets are not shown.

    The doctor does not see an editor's settings.
    """
    facts: list[tuple[str, str]] = []
    defaults: list[tuple[str, str]] = []
    for setting in SETTINGS.values():
        value = getattr(settings, setting.name)
        shown = ("set" if value else "not set") if setting.secret else _show(value)
        origin = _origin(settings, setting.name, environment)
        (defaults if origin == _DEFAULT else facts).append((json_name(setting.name), f"{shown} ({origin})"))
    problems = tuple(f"{error} (correct or unset the variable)" for error in refused)
    return Section("settings", tuple(facts), problems, tuple(defaults))


def _origin(settings: Settings, name: str, environment: Mapping[str, str]) -> str:
    variable = variable_name(name)
    text = environment.get(variable, "")
    from_variable, refused = read_environment(Settings(), {variable: text})
    if getattr(settings, name) != getattr(from_variable, name):
        return option_name(name)
    return variable if text and not refused else _DEFAULT


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value) or "none"
