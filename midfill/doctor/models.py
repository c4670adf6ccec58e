"""Checks the configured model by the plan that the core loads it by; without torch."""

from __future__ import annotations

from inference.checkpoints.checkpoint import Checkpoint, find_local_checkpoint
from inference.loading.choices import choose_device
from inference.loading.instead import llama_server_for
from inference.loading.memory_plan import MemoryPlan
from inference.loading.options import Gpu, engine_options, find_llama_server
from inference.loading.placement import plan_load
from midfill.doctor.findings import Section
from protocol.errors import BadModel, MidfillError
from protocol.messages import megabytes
from protocol.settings import Settings


def model(settings: Settings, gpus: tuple[Gpu, ...], loaded_on: str = "") -> Section:
    """The model, its device, and its memory.

    A core that has loaded it, on the device `loaded_on`, holds what the plan asks for: then it lacks nothing.
    """
    device = choose_device(settings, gpus)
    facts = [("model", settings.model)]
    problems = [device.problem] if device.problem else []
    name, runs, lack = device.name, "", ""
    try:
        checkpoint = find_local_checkpoint(settings.model)
        if checkpoint is None:
            facts.append(("files", "not in the local cache, or incomplete: midfill downloads it on first use"))
            problems += _no_download(settings.model)
        else:
            facts += _describe(checkpoint, settings)
            machine = device.machine(find_llama_server() if device.gpu else "")
            plan = plan_load(engine_options(settings), checkpoint, machine)
            name = plan.device
            if plan.placement.runner in ("CPU", "GPU"):
                facts += [("dtype", plan.dtype), ("memory", _show_plan(plan.memory))]
            if not loaded_on:
                runs, lack = _instead(settings, plan.lack) if plan.lack else (str(plan.placement), "")
    except BadModel as error:
        runs, lack = _instead(settings, str(error))
    except MidfillError as error:
        lack = str(error)
    facts += [("runs on", runs)] if runs else []
    problems += [lack] if lack else []
    facts.append(("device", loaded_on or name))
    return Section("model", tuple(facts), tuple(problems))


def _instead(settings: Settings, problem: str) -> tuple[str, str]:
    """What runs a model that midfill's own engine does not run, or else the problem, with a remedy if there is one."""
    try:
        program = llama_server_for(settings.model, problem, settings.fim_format)
    except BadModel as missing:
        return "", str(missing)
    runs = f"llama-server: {program}, since midfill's own engine does not run it: {problem}"
    return (runs, "") if program else ("", problem)


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
    dtypes = sorted({tensor.type_name for file in weights for tensor in file.tensors.values()})
    split = "fragments suffice" if fim.fragments_suffice else "token healing by default"
    return [
        ("files", str(checkpoint.path)),
        ("weights", f"{megabytes(sum(file.size for file in weights))} in {', '.join(dtypes)}"),
        ("architecture", f"{checkpoint.architecture.model_type}, {checkpoint.architecture.layers} layers"),
        ("FIM format", f"{fim.name}, {split}"),
        ("context", f"{context} tokens, of {checkpoint.architecture.max_positions} that the model supports"),
    ]


def _show_plan(plan: MemoryPlan) -> str:
    workspaces = f"{plan.kept} x {megabytes(plan.workspace + plan.graphs)} for workspaces"
    if plan.kept < plan.slots:
        workspaces += f" ({plan.slots} while as many requests are at work)"
    parts = f"{megabytes(plan.weights)} for weights, {workspaces}, {megabytes(plan.forwards)} for forwards"
    kept = f"up to {megabytes(plan.store)} for resident KV"
    if plan.snapshots:
        kept += f" and states ({megabytes(plan.snapshots)} of it)"
    total = f"up to {megabytes(plan.in_use)} in all, and about 120 MB for the process, 350 MB if it imports torch"
    return f"{parts}, {kept}: {total}; {megabytes(plan.free)} are free"
