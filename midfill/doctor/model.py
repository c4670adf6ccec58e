"""The model that the settings ask for: whether it is there and whole, and how it will run; torch is not imported."""

from __future__ import annotations

import json
from dataclasses import dataclass

import psutil

from inference.architecture import ModelShape
from inference.checkpoint import Checkpoint, find_local_checkpoint
from inference.default_dtype import default_dtype
from inference.weights import WeightsFile
from midfill.doctor.findings import Section, megabytes
from midfill.doctor.machine import Gpu, version_of
from protocol.errors import MidfillError
from protocol.settings import Settings

_BYTES_OF_DTYPE = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Device:
    """Where the model will run, and what is wrong with that."""

    name: str
    problem: str = ""


def model(settings: Settings, gpus: tuple[Gpu, ...]) -> Section:
    """The model, its device, and what it takes."""
    device = choose_device(settings, gpus)
    facts = [("model", settings.model)]
    problems = [problem for problem in (device.problem, weights_problem(settings, device.name)) if problem]
    try:
        checkpoint = find_local_checkpoint(settings.model)
        if checkpoint is None:
            facts.append(("files", "not here yet, or not all of them: they are downloaded on first use"))
        else:
            dtype = choose_dtype(settings, device.name, checkpoint.architecture)
            facts += _describe(checkpoint, settings, dtype)
            if device.name == "cpu":  # GPUs are left to the core
                problems += _too_large(checkpoint, settings, dtype)
    except MidfillError as error:
        problems.append(str(error))
    facts.append(("device", device.name))
    return Section("model", tuple(facts), tuple(problems))


def choose_device(settings: Settings, gpus: tuple[Gpu, ...]) -> Device:
    """The device that the core will choose, told from the build of torch and the GPUs that the driver names."""
    build = (version_of("torch") or "").partition("+")[2]
    can_cuda = bool(gpus) and build != "cpu"
    name, problem = settings.device, ""
    if name == "auto":
        name = "cuda" if can_cuda else "cpu"
    elif name.startswith("cuda") and not can_cuda:
        why = "there is no GPU" if not gpus else f"torch is a build without CUDA ({version_of('torch')})"
        problem = f"the device {name} cannot be used, since {why}: choose --device cpu, or install a torch with CUDA"
    return Device(name, problem)


def weights_problem(settings: Settings, device: str) -> str:
    """What is wrong with the weights that are asked for, on this device; nothing, as a rule."""
    on_gpu = device.startswith("cuda")
    if settings.weights == "fp8" and not on_gpu:
        return f"fp8 weights need a CUDA GPU, and the device is {device}: choose --weights auto, or int8 on a CPU"
    if settings.weights != "auto" and on_gpu and version_of("torchao") is None:
        return f"{settings.weights} weights on a GPU need the package torchao: run pip install 'midfill[gpu]'"
    return ""


def choose_dtype(settings: Settings, device: str, shape: ModelShape) -> str:
    """The numbers in which the core will compute a model of this shape on the device."""
    if settings.dtype != "auto":
        return settings.dtype
    return default_dtype(device, shape, may_use_kernel=not settings.exact)


def _describe(checkpoint: Checkpoint, settings: Settings, dtype: str) -> list[tuple[str, str]]:
    weights = checkpoint.weights()
    fim = checkpoint.tokenizer(settings.fim_format).format
    context = min(settings.context_tokens, checkpoint.architecture.max_positions)
    split = "trained on fragments" if fim.trained_on_fragments else "not trained on fragments"
    return [
        ("files", str(checkpoint.folder)),
        ("weights", f"{megabytes(sum(file.size for file in weights))} in {', '.join(_stored_dtypes(weights))}"),
        ("architecture", f"{checkpoint.architecture.model_type}, {checkpoint.architecture.layers} layers"),
        ("FIM format", f"{fim.name}, {split}"),
        ("context", f"{context} tokens, of {checkpoint.architecture.max_positions} that the model was made for"),
        ("numbers", dtype),
        ("KV cache", f"{megabytes(_kv_bytes(checkpoint, context, dtype))} for a full context"),
    ]


def _too_large(checkpoint: Checkpoint, settings: Settings, dtype: str) -> list[str]:
    """What is wrong where the weights and one context do not fit into memory."""
    weights = checkpoint.weights()
    stored = 2 if _stored_dtypes(weights) != ["F32"] else 4
    parameters = sum(file.size for file in weights) / stored
    context = min(settings.context_tokens, checkpoint.architecture.max_positions)
    needed = parameters * _BYTES_OF_DTYPE[dtype] + _kv_bytes(checkpoint, context, dtype)
    free = psutil.virtual_memory().available
    if needed <= free:
        return []
    return [
        f"the model needs about {megabytes(needed)} of memory in {dtype}, and {megabytes(free)} are free: "
        "close something, choose a smaller model, or set --dtype bfloat16"
    ]


def _kv_bytes(checkpoint: Checkpoint, context_tokens: int, dtype: str) -> int:
    return checkpoint.architecture.kv_values_per_token * context_tokens * _BYTES_OF_DTYPE[dtype]


def _stored_dtypes(weights: tuple[WeightsFile, ...]) -> list[str]:
    entries = [entry for file in weights for name, entry in json.loads(file.header).items() if name != "__metadata__"]
    return sorted({str(entry["dtype"]) for entry in entries})
