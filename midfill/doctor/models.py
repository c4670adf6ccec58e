"""Lists the models on this machine, and says of each whether midfill can run it here."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from inference.checkpoints.checkpoint import open_checkpoint
from inference.checkpoints.local_models.description import LocalModel
from inference.checkpoints.local_models.known import KNOWN_MODELS, KnownModel
from inference.checkpoints.local_models.search import search
from inference.loading.gpus import Gpu, find_llama_server
from inference.loading.speed_record import is_fast, recommended
from midfill.doctor.findings import Section
from midfill.doctor.model import Device, choose_device, choose_dtype, choose_runner, measured, memory_of
from protocol.errors import MidfillError
from protocol.settings import BUNDLED_MODEL, Settings
from protocol.sizes import megabytes


@dataclass(frozen=True, slots=True)
class Choice:
    """A model on this machine or to download; `needed` is about the memory, in bytes, to run it; 0 if unknown.

    `problem` says why midfill cannot run it here; it is empty if midfill can. `speed` is as a core has measured it.
    """

    model: LocalModel
    needed: int
    problem: str
    here: bool = True
    licence: str = ""  # of a model to download
    speed: str = ""
    recommended: bool = False

    @property
    def summary(self) -> str:
        """Family, size, quantization and FIM format, as far as they are known."""
        size = megabytes(self.model.size) if self.model.size else ""
        model = self.model
        return ", ".join(filter(None, [model.family, size, model.quantization, model.fim, self.licence]))

    def as_json(self) -> dict[str, Any]:
        """The fields that `midfill models --json` prints."""
        model = self.model
        return {
            "name": model.name,
            "source": model.source,
            "path": str(model.path),
            "family": model.family,
            "parameters": model.parameters,
            "sizeBytes": model.size,
            "quantization": model.quantization,
            "fimFormat": model.fim,
            "neededBytes": self.needed,
            "problem": self.problem,
            "here": self.here,
            "licence": self.licence,
            "speed": self.speed,
            "recommended": self.recommended,
        }


def choices(settings: Settings, gpus: tuple[Gpu, ...]) -> list[Choice]:
    """Every model on this machine, and known ones to download; those that midfill can run here first."""
    device = choose_device(settings, gpus)
    program = find_llama_server() if device.gpu else ""
    found = [_choice(model, settings, device, program) for model in search(os.environ, Path.home())]
    here = {choice.model.name.partition(":")[0] for choice in found}
    known = [_to_download(model, device) for model in KNOWN_MODELS if model.name not in here]
    return _with_speeds(sorted([*found, *known], key=lambda choice: (bool(choice.problem), not choice.here)), settings)


def _to_download(known: KnownModel, device: Device) -> Choice:
    model = LocalModel(known.name, "Hugging Face hub", Path(), size=known.size, fim=known.fim)
    return Choice(model, known.size, _lack(known.size, device), here=False, licence=known.licence)


def _with_speeds(found: list[Choice], settings: Settings) -> list[Choice]:
    """With measured speeds; recommended is the largest model that is fast, or else the one of our own that suits."""
    speeds = {each.model.name: measured(replace(settings, model=each.model.name)) for each in found if each.here}
    fast = [each for each in found if (speed := speeds.get(each.model.name)) and not each.problem and is_fast(speed)]
    best = max(fast, key=lambda choice: choice.model.parameters).model.name if fast else ""
    if not fast and (bundled := speeds.get(BUNDLED_MODEL)):
        best = recommended(bundled)
    return [
        replace(each, speed=str(speeds.get(each.model.name) or ""), recommended=each.model.name == best)
        for each in found
    ]


def models(settings: Settings, gpus: tuple[Gpu, ...]) -> Section:
    """The models on this machine as a section; a model that cannot run is no problem of the installation."""
    facts = [(choice.model.name, _line(choice)) for choice in choices(settings, gpus) if choice.here]
    return Section("models on this machine", tuple(facts))


def _line(choice: Choice) -> str:
    return "; ".join(filter(None, [choice.summary, choice.problem and f"cannot run: {choice.problem}"]))


def _choice(model: LocalModel, settings: Settings, device: Device, llama_server: str) -> Choice:
    if model.problem:
        return Choice(model, 0, model.problem)
    needed, device = _needed(model, settings, device, llama_server)
    if not model.fim:
        return Choice(model, needed, "its tokenizer has no fill-in-the-middle markers that midfill knows")
    return Choice(model, needed, _lack(needed, device))


def _lack(needed: int, device: Device) -> str:
    """The problem of a model that needs more memory than is free; empty if it fits."""
    free = device.gpu.free_bytes if device.gpu else psutil.virtual_memory().available
    if needed <= free:
        return ""
    return f"it needs about {megabytes(needed)} of {device.name}'s memory, and {megabytes(free)} are free"


def _needed(model: LocalModel, settings: Settings, device: Device, llama_server: str) -> tuple[int, Device]:
    """About the bytes with one workspace and nothing resident, as the core plans them, and on which device.

    0 if they are unknown, as in llama-server, or if the model is spread over all devices.
    """
    try:
        checkpoint = open_checkpoint(model.path, model.name)
        device, placement = choose_runner(settings, checkpoint, device, llama_server)
        if placement is not None and placement.runner in ("llama-server", "all devices"):
            return 0, device
        dtype = choose_dtype(settings, device, checkpoint.architecture)
        return memory_of(checkpoint, settings, dtype, device).least, device
    except (MidfillError, OSError):  # a file that is being written
        return 0, device
