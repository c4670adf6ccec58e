"""The models on this machine and known ones to download, each with whether midfill can run it here; without torch."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.checkpoints.checkpoint import open_checkpoint
from inference.checkpoints.local_models import KNOWN_MODELS, KnownModel, LocalModel, search
from inference.loading.instead import llama_server_for
from inference.loading.main_memory import main_memory
from inference.loading.options import Gpu, engine_options, find_llama_server
from inference.loading.placement import Machine, plan_load
from protocol.errors import BadModel, MidfillError
from protocol.installation import version_of
from protocol.messages import megabytes
from protocol.settings import Settings

_DEVICES = re.compile(r"auto|cpu|mps|cuda(:\d+)?")


@dataclass(frozen=True, slots=True)
class Device:
    """The device that torch would use, and its problem if any; on CUDA, its GPU."""

    name: str
    problem: str = ""
    gpu: Gpu | None = None

    def machine(self, llama_server: str) -> Machine:
        gpu = self.gpu
        return Machine(self.name, gpu.free_bytes, gpu.capability, llama_server) if gpu else Machine(self.name)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model on this machine or to download; `needed` is about the memory, in bytes, to run it; 0 if unknown.

    `problem` says why midfill cannot run it here; it is empty if midfill can, be it with the other engine that
    `runs_with` names.
    """

    model: LocalModel
    needed: int
    problem: str
    here: bool = True
    licence: str = ""  # of a model to download
    runs_with: str = ""

    @property
    def summary(self) -> str:
        """Family, size, quantization, FIM format and another engine, as far as they are known."""
        size = megabytes(self.model.size) if self.model.size else ""
        model = self.model
        runs = self.runs_with and f"runs with {self.runs_with}"
        return ", ".join(filter(None, [model.family, size, model.quantization, model.fim, self.licence, runs]))

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
            "runsWith": self.runs_with,
            "here": self.here,
            "licence": self.licence,
        }


def choices(settings: Settings, gpus: tuple[Gpu, ...]) -> list[ModelChoice]:
    """Every model on this machine, and known ones to download; those that midfill can run here first."""
    device = choose_device(settings, gpus)
    program = find_llama_server() if device.gpu else ""
    found = [_choice(model, settings, device, program) for model in search()]
    here = {choice.model.name.partition(":")[0] for choice in found}
    known = [_to_download(model, device) for model in KNOWN_MODELS if model.name not in here]
    return sorted([*found, *known], key=lambda choice: (bool(choice.problem), not choice.here))


def _to_download(known: KnownModel, device: Device) -> ModelChoice:
    model = LocalModel(known.name, "Hugging Face hub", Path(), size=known.size, fim=known.fim)
    free = device.gpu.free_bytes if device.gpu else main_memory().available
    return ModelChoice(model, known.size, _lack(known.size, free, device.name), here=False, licence=known.licence)


def choose_device(settings: Settings, gpus: tuple[Gpu, ...]) -> Device:
    """The device that the core will choose, from the build of torch and the GPUs that the driver lists."""
    name = settings.device
    if not _DEVICES.fullmatch(name):
        return Device(name, f"unknown device {name!r}: choose device auto, cpu, cuda, cuda:N or mps")
    if name == "mps" and (platform.system(), platform.machine()) != ("Darwin", "arm64"):
        return Device(name, "the device mps needs Apple silicon, which this machine does not have: choose device auto")
    torch = version_of("torch")
    can_cuda = bool(gpus) and torch is not None and torch.partition("+")[2] != "cpu"
    if name == "auto":
        name = "cuda" if can_cuda else "cpu"
    if not name.startswith("cuda"):
        return Device(name)
    if not can_cuda:
        lack = "PyTorch is not installed" if torch is None else f"torch is a build without CUDA ({torch})"
        why = lack if gpus else "there is no GPU"
        remedy = "choose device cpu, or install a torch with CUDA"
        return Device(name, f"the device {name} cannot be used, since {why}: {remedy}")
    number = int(name.partition(":")[2] or 0)
    if number >= len(gpus):
        return Device(name, f"there is no device {name}: the last GPU is cuda:{len(gpus) - 1}")
    return Device(name, gpu=gpus[number])


def download_reporting(name: str, report: Callable[[dict[str, object]], None]) -> None:
    """Download a model; reports progress, and then its path, or the quantizations to choose from."""
    from inference.checkpoints.hub import WANTED_FILES, SeveralQuantizations, download

    try:
        path = download(name, lambda done, total: report({"done": done, "total": total}), WANTED_FILES)
    except SeveralQuantizations as several:
        report({"choices": [{"name": choice, "sizeBytes": size} for choice, size in several.sizes.items()]})
    else:
        report({"path": str(path)})


def _choice(model: LocalModel, settings: Settings, device: Device, llama_server: str) -> ModelChoice:
    try:
        needed, problem = (0, model.problem) if model.problem else _needed(model, settings, device, llama_server)
    except MidfillError as error:  # a bad setting, which keeps a core from any engine
        return ModelChoice(model, 0, str(error))
    if not model.fim and not model.problem:
        problem = "its tokenizer has no fill-in-the-middle markers that midfill knows"
    if not problem:
        return ModelChoice(model, needed, "")
    try:
        if llama_server_for(model.name, problem, settings.fim_format):
            return ModelChoice(model, 0, "", runs_with="llama-server")
    except BadModel as error:
        problem = str(error)
    return ModelChoice(model, needed, problem)


def _needed(model: LocalModel, settings: Settings, device: Device, llama_server: str) -> tuple[int, str]:
    """About the bytes with one workspace and nothing resident, as the core plans them, and what is wrong with them.

    0 if they are unknown, as in llama-server, or if the model is spread over all devices. BadInput for a bad setting.
    """
    try:
        checkpoint = open_checkpoint(model.path, model.name)
        plan = plan_load(engine_options(settings), checkpoint, device.machine(llama_server))
    except (BadModel, OSError) as error:  # also a file that is being written
        return 0, str(error)
    if plan.placement.runner in ("llama-server", "all devices"):
        return 0, ""
    return plan.memory.least, plan.lack


def _lack(needed: int, free: int, device: str) -> str:
    """The problem of a model that needs more memory than is free; empty if it fits."""
    if needed <= free:
        return ""
    return f"it needs about {megabytes(needed)} of {device}'s memory, and {megabytes(free)} are free"
