"""Checks the configured model: its files, and how it will run on this machine, without importing torch."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, replace

import psutil

from inference.checkpoints.architecture import ModelShape
from inference.checkpoints.checkpoint import Checkpoint, find_local_checkpoint
from inference.checkpoints.weights import WeightsFile
from inference.loading.default_dtype import default_dtype
from inference.loading.gpus import Gpu, find_llama_server
from inference.loading.memory_plan import MemoryPlan, plan_memory
from inference.loading.options import engine_options
from inference.loading.placement import Placement, demand_of, place, situation_of
from inference.loading.speed_record import Speed, SpeedRecord, recommended
from midfill.doctor.findings import Section
from midfill.installation import version_of
from protocol.errors import MidfillError
from protocol.rendezvous import cache_folder, resolve_model
from protocol.settings import BUNDLED_MODEL, Settings
from protocol.sizes import megabytes

_DEVICES = re.compile(r"auto|cpu|mps|cuda(:\d+)?")


@dataclass(frozen=True, slots=True)
class Device:
    """The device that the model will run on, and its problem if any; on CUDA, its GPU."""

    name: str
    problem: str = ""
    gpu: Gpu | None = None


def model(settings: Settings, gpus: tuple[Gpu, ...]) -> Section:
    """The model, its device, and its memory."""
    device = choose_device(settings, gpus)
    facts = [("model", settings.model)]
    problems = [device.problem] if device.problem else []
    try:
        checkpoint = find_local_checkpoint(settings.model)
        if checkpoint is None:
            facts.append(("files", "not in the local cache, or incomplete: midfill downloads it on first use"))
            problems += _no_download(settings.model)
        else:
            program = find_llama_server() if device.gpu else ""
            device, placement = choose_runner(settings, checkpoint, device, program)
            facts += [*_describe(checkpoint, settings), ("runs on", str(placement or device.name))]
            if placement is None or placement.runner in ("CPU", "GPU"):
                dtype = choose_dtype(settings, device, checkpoint.architecture)
                plan = memory_of(checkpoint, settings, dtype, device)
                facts += [("dtype", dtype), ("memory", _show_plan(plan))]
                problems += _too_large(plan, device, dtype)
    except MidfillError as error:
        problems.append(str(error))
    if problem := weights_problem(settings, device.name):
        problems.append(problem)
    facts += [("device", device.name), *_speed(settings)]
    return Section("model", tuple(facts), tuple(problems))


def choose_device(settings: Settings, gpus: tuple[Gpu, ...]) -> Device:
    """The device that the core will choose, from the build of torch and the GPUs that the driver lists."""
    name = settings.device
    if not _DEVICES.fullmatch(name):
        return Device(name, f"unknown device {name!r}: choose --device auto, cpu, cuda, cuda:N or mps")
    if name == "mps" and (platform.system(), platform.machine()) != ("Darwin", "arm64"):
        return Device(
            name, "the device mps needs Apple silicon, which this machine does not have: choose --device auto"
        )
    can_cuda = bool(gpus) and (version_of("torch") or "").partition("+")[2] != "cpu"
    if name == "auto":
        name = "cuda" if can_cuda else "cpu"
    if not name.startswith("cuda"):
        return Device(name)
    if not can_cuda:
        why = "there is no GPU" if not gpus else f"torch is a build without CUDA ({version_of('torch')})"
        remedy = "choose --device cpu, or install a torch with CUDA"
        return Device(name, f"the device {name} cannot be used, since {why}: {remedy}")
    number = int(name.partition(":")[2] or 0)
    if number >= len(gpus):
        return Device(name, f"there is no device {name}: the last GPU is cuda:{len(gpus) - 1}")
    return Device(name, gpu=gpus[number])


def choose_runner(
    settings: Settings, checkpoint: Checkpoint, device: Device, llama_server: str
) -> tuple[Device, Placement | None]:
    """What will run the model with the device `auto`, and the device then; no choice is left with another setting.

    llama_server: the program, if it has a GPU; otherwise empty.
    """
    if settings.device != "auto":
        return device, None
    gpu = device.gpu
    free, capability = (gpu.free_bytes, gpu.capability) if gpu else (None, None)
    placement = place(situation_of(engine_options(settings), checkpoint, free, capability, llama_server))
    return Device("cpu") if placement.runner == "CPU" else device, placement


def weights_problem(settings: Settings, device: str) -> str:
    """The problem with the setting `weights` on this device; empty if there is none."""
    on_gpu = device.startswith("cuda")
    if settings.weights == "fp8" and not on_gpu:
        return f"fp8 weights need a CUDA GPU, and the device is {device}: choose auto, or int8 or int4 on a CPU"
    if settings.weights == "int4" and device != "cpu":
        return f"int4 weights need the CPU kernel, and the device is {device}: choose --weights auto, or --device cpu"
    if settings.weights != "auto" and on_gpu and version_of("torchao") is None:
        return f"{settings.weights} weights on a GPU need the package torchao: install torchao>=0.18"
    return ""


def choose_dtype(settings: Settings, device: Device, shape: ModelShape) -> str:
    """The dtype in which the core will compute a model of this shape on the device."""
    if settings.dtype != "auto":
        return settings.dtype
    return default_dtype(
        device.name,
        shape,
        may_use_kernel=True,
        weights=settings.weights,
        capability=device.gpu.capability if device.gpu else None,
    )


def _speed(settings: Settings) -> list[tuple[str, str]]:
    """The model's speed on this machine as its answers took, and which of our own models suits it."""
    speed = measured(settings)
    facts = [("speed", str(speed) if speed else "not known yet: a core keeps that of its answers")]
    bundled = measured(replace(settings, model=BUNDLED_MODEL))
    if bundled is not None:
        facts.append(("recommended", f"{recommended(bundled)} ({BUNDLED_MODEL}: {bundled})"))
    return facts


def measured(settings: Settings) -> Speed | None:
    """The speed of the settings' model on this machine, as a core has kept it; None if none has."""
    return SpeedRecord(cache_folder(), replace(engine_options(settings), model=resolve_model(settings.model))).speed


def _no_download(model: str) -> list[str]:
    """The problem of a model that must be downloaded while the hub's library is offline."""
    from huggingface_hub.constants import HF_HUB_OFFLINE

    if not HF_HUB_OFFLINE:
        return []
    return [
        (
            f"{model} is not in the local cache, and HF_HUB_OFFLINE forbids the download: unset it once, or "
            "choose a local model (a folder, or `bundled`)"
        )
    ]


def _describe(checkpoint: Checkpoint, settings: Settings) -> list[tuple[str, str]]:
    weights = checkpoint.weights()
    fim = checkpoint.tokenizer(settings.fim_format).format
    context = min(settings.context_tokens, checkpoint.architecture.max_positions)
    split = "fragments suffice" if fim.fragments_suffice else "token healing by default"
    return [
        ("files", str(checkpoint.path)),
        ("weights", f"{megabytes(sum(file.size for file in weights))} in {', '.join(_stored_dtypes(weights))}"),
        ("architecture", f"{checkpoint.architecture.model_type}, {checkpoint.architecture.layers} layers"),
        ("FIM format", f"{fim.name}, {split}"),
        ("context", f"{context} tokens, of {checkpoint.architecture.max_positions} that the model supports"),
    ]


def memory_of(checkpoint: Checkpoint, settings: Settings, dtype: str, device: Device) -> MemoryPlan:
    """The memory plan that the core will make when it loads the model, from the memory free now."""
    demand = demand_of(engine_options(settings), checkpoint, device.name, dtype)
    return plan_memory(demand, device.gpu.free_bytes if device.gpu else psutil.virtual_memory().available)


def _show_plan(plan: MemoryPlan) -> str:
    workspaces = f"{plan.kept} x {megabytes(plan.workspace + plan.graphs)} for workspaces"
    if plan.kept < plan.slots:
        workspaces += f" ({plan.slots} while as many requests are at work)"
    parts = f"{megabytes(plan.weights)} for weights, {workspaces}, {megabytes(plan.forwards)} for forwards"
    total = f"up to {megabytes(plan.in_use)} in all, and about 250 MB for torch"
    return f"{parts}, up to {megabytes(plan.store)} for resident KV: {total}; {megabytes(plan.free)} are free"


def _too_large(plan: MemoryPlan, device: Device, dtype: str) -> list[str]:
    """The problem of a model that does not fit."""
    if plan.fits:
        return []
    remedy = (
        "choose a smaller model or context, --weights int8, or --device cpu"
        if device.gpu
        else ("close other programs, choose a smaller model, or set --weights int8 or int4")
    )
    needed = f"about {megabytes(plan.least)} of {device.name}'s memory in {dtype}"
    return [f"the model needs {needed}, and {megabytes(plan.usable)} are free for it: {remedy}"]


def _stored_dtypes(weights: tuple[WeightsFile, ...]) -> list[str]:
    return sorted({tensor.type_name for file in weights for tensor in file.tensors.values()})
