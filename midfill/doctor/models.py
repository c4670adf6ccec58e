"""Lists the models on this machine, and says of each whether midfill can run it here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from inference.checkpoints.local_models.description import LocalModel
from inference.checkpoints.local_models.search import search
from inference.loading.memory_plan import DTYPE_BYTES
from midfill.doctor.findings import Section, megabytes
from midfill.doctor.machine import Gpu
from midfill.doctor.model import Device, choose_device, choose_dtype
from protocol.settings import Settings


@dataclass(frozen=True, slots=True)
class Choice:
    """A model on this machine; `needed` is about the memory, in bytes, to run it; 0 if unknown.

    `problem` says why midfill cannot run it here; it is empty if midfill can.
    """

    model: LocalModel
    needed: int
    problem: str

    @property
    def summary(self) -> str:
        """Family, size, quantization and FIM format, as far as they are known."""
        size = megabytes(self.model.size) if self.model.size else ""
        return ", ".join(filter(None, [self.model.family, size, self.model.quantization, self.model.fim]))

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
        }


def choices(settings: Settings, gpus: tuple[Gpu, ...]) -> list[Choice]:
    """Every model on this machine, those that midfill can run first."""
    device = choose_device(settings, gpus)
    free = device.gpu.free_bytes if device.gpu else psutil.virtual_memory().available
    found = [_choice(model, settings, device, free) for model in search(os.environ, Path.home())]
    return sorted(found, key=lambda choice: bool(choice.problem))


def models(settings: Settings, gpus: tuple[Gpu, ...]) -> Section:
    """The models on this machine as a section; a model that cannot run is no problem of the installation."""
    facts = [(choice.model.name, _line(choice)) for choice in choices(settings, gpus)]
    return Section("models on this machine", tuple(facts))


def _line(choice: Choice) -> str:
    return "; ".join(filter(None, [choice.summary, choice.problem and f"cannot run: {choice.problem}"]))


def _choice(model: LocalModel, settings: Settings, device: Device, free: int) -> Choice:
    needed = _needed(model, settings, device)
    if model.problem:
        return Choice(model, needed, model.problem)
    if not model.fim:
        return Choice(model, needed, "its tokenizer has no fill-in-the-middle markers that midfill knows")
    if needed > free:
        fault = f"it needs about {megabytes(needed)} of {device.name}'s memory, and {megabytes(free)} are free"
        return Choice(model, needed, fault)
    return Choice(model, needed, "")


def _needed(model: LocalModel, settings: Settings, device: Device) -> int:
    """About the bytes of the weights in memory and of one workspace; 0 if the metadata do not say."""
    if model.shape is None:
        return 0
    size = DTYPE_BYTES[choose_dtype(settings, device, model.shape)]
    tokens = min(settings.context_tokens, model.shape.max_positions)
    weights = model.parameters * (size if settings.weights == "auto" else 1)
    return weights + model.shape.kv_values_per_token * tokens * size
