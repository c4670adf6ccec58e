"""Wires checkpoint, tokenizer, model, workspaces and store into an engine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from inference.backends.cpu.library import usable_threads
from inference.backends.model import DryModel, Model
from inference.checkpoints.architecture import Architecture, ModelShape
from inference.checkpoints.checkpoint import Checkpoint, find_checkpoint, find_local_checkpoint, fingerprint
from inference.checkpoints.hub import ReportProgress
from inference.engine.engine import Engine, EngineConfig
from inference.engine.interface import DeviceHooks, EngineInfo
from inference.loading.main_memory import main_memory
from inference.loading.memory_plan import MOST_STORE, MemoryPlan, plan_memory
from inference.loading.options import EngineOptions, has_gpu_driver, has_torch
from inference.loading.placement import LoadPlan, Machine, Placement, plan_load
from inference.text.healing import Healer, wants_healing
from inference.text.tokenization import TextTokenizer
from kv_store.interface import DryWorkspace
from kv_store.page_snapshots import SnapshotTier
from kv_store.snapshots import FEWEST_SNAPSHOTS, Snapshots
from kv_store.store import PagedStore
from kv_store.tiers import MemoryStorage, Tier
from protocol.errors import BadInput, BadModel, DeviceLost
from protocol.installation import needing_torch, own_version

if TYPE_CHECKING:
    import torch

    from inference.backends.cpu.model import KernelModel
    from inference.backends.generic import GenericModel
    from inference.backends.llama.decoder import Decoder
    from inference.backends.llama.graphs import GraphedDecoder

    LoadedModel = Decoder | GraphedDecoder | KernelModel | GenericModel

MIN_CONTEXT_TOKENS = 64
HOST_SHARE = 8  # of main memory, an eighth at most is pinned for KV: pinned memory cannot be swapped
DRY_BYTES_PER_VALUE = 4  # float32, as on a CPU
DRY_PROMPTS = 4  # whose snapshots the store keeps: of one byte each, as few as of the largest models

log = logging.getLogger(__name__)

SAMPLE = Path(__file__).parents[1] / "text" / "tokenization.py"


@dataclass(frozen=True, slots=True)
class Examined:
    """What was read of a checkpoint to tell that a core of some options can use it, and its `fingerprint`."""

    identity: str
    tokenizer: TextTokenizer
    context_tokens: int


def examine(options: EngineOptions) -> Examined | None:
    """The model's checkpoint, examined; None if the model is not on this machine, so that loading downloads it first.

    Raises BadModel or BadInput for faults detectable without torch: missing or damaged files, an unsupported
    architecture or tokenizer.
    """
    checkpoint = find_local_checkpoint(options.model)
    return None if checkpoint is None else _examine(options, checkpoint, lambda _what, _share: None)


def _examine(options: EngineOptions, checkpoint: Checkpoint, report: ReportProgress) -> Examined:
    """All that can be told without torch, so that every command refuses the same."""
    checkpoint.weights()
    context_tokens = _context_tokens(options, checkpoint.architecture)
    report("reading the tokenizer", None)
    return Examined(fingerprint(checkpoint, ""), checkpoint.tokenizer(options.fim_format), context_tokens)


def import_what_loading_needs() -> None:
    """Import what runs a model, ahead of the first request: torch, which takes a second, where a GPU may run it."""
    from inference.loading import kernel, tiers  # noqa: F401

    if has_gpu_driver() and has_torch():
        from inference.loading import components  # noqa: F401


def load_engine(options: EngineOptions, progress: ReportProgress | None = None, examined: Examined | None = None) -> Engine:
    """An engine that runs the model of `options`; what was `examined` of it before is used if the files are the same.

    Raises BadModel or BadInput, with the value at fault, or DeviceLost if this process cannot use its GPU.
    """
    report = progress or (lambda _what, _share: None)
    report("looking for the model", None)
    checkpoint = find_checkpoint(options.model, report)
    if examined is None or examined.identity != fingerprint(checkpoint, ""):
        examined = _examine(options, checkpoint, report)
    if options.threads < 0:
        raise BadInput(f"threads must be 0 or more, not {options.threads}")
    with needing_torch(checkpoint.name):
        if options.device == "cpu" or (options.device == "auto" and not (has_gpu_driver() and has_torch())):
            plan = plan_load(options, checkpoint, Machine("cpu"))
            if plan.demand.on_kernel:
                return _load_on_kernel(plan, options, checkpoint, examined, report)
        return _load_with_torch(options, checkpoint, examined, report)


def _load_on_kernel(
    plan: LoadPlan, options: EngineOptions, checkpoint: Checkpoint, examined: Examined, report: ReportProgress
) -> Engine:
    """Without torch, unless the weights or the layers need it."""
    from inference.loading.kernel import is_computed_by_torch, load_on_kernel

    shape = checkpoint.architecture
    assert isinstance(shape, Architecture), "the kernel has no other"
    log.info("%s runs on %s", checkpoint.name, plan.placement)
    _check_memory(plan, checkpoint.name)
    if is_computed_by_torch(checkpoint, shape, options.weights):
        _set_threads(options.threads)
    with ThreadPoolExecutor(1) as beside:  # what the tokenizer's tables take in Python, packing leaves free
        healing = beside.submit(_healer, options, examined.tokenizer)
        model = load_on_kernel(checkpoint, shape, examined.context_tokens, plan.dtype, options, report)
    device = None
    if not model.keeps_arrays:
        import torch

        device = torch.device("cpu")
    return _with_store(plan, options, checkpoint, examined, model, device, plan.memory, healing.result(), DeviceHooks())


def _load_with_torch(options: EngineOptions, checkpoint: Checkpoint, examined: Examined, report: ReportProgress) -> Engine:
    report("starting torch", None)

    import torch

    from inference.backends import cuda
    from inference.backends.llama.graphs import GraphedDecoder

    device = cuda.find_device(options.device)
    try:
        gpu = (cuda.free_bytes(device), cuda.capability(device)) if device.type == "cuda" else (None, None)
        plan = plan_load(options, checkpoint, Machine(str(device), *gpu))
        if plan.device == "cpu" and plan.demand.on_kernel:
            return _load_on_kernel(plan, options, checkpoint, examined, report)
        log.info("%s runs on %s", checkpoint.name, plan.placement)
        device, dtype = torch.device(plan.device), getattr(torch, plan.dtype)
        if device.type == "cuda":
            cuda.use(device)
        _set_threads(options.threads)
        _check_memory(plan, checkpoint.name)
        with ThreadPoolExecutor(1) as beside:
            healing = beside.submit(_healer, options, examined.tokenizer)
            model = _load_model(checkpoint, examined.context_tokens, device, dtype, options, report)
        memory = plan.memory
        if device.type == "cuda":
            cuda.give_memory_back()  # what loading fragmented
            if isinstance(model, GraphedDecoder):
                memory = plan_memory(replace(plan.demand, graph_bytes=model.measure_graphs()), memory.free)
                log.info("memory of %s with the measured graphs, in bytes: %s", device, memory)
        return _with_store(plan, options, checkpoint, examined, model, model.device, memory, healing.result())
    except (RuntimeError, BadModel) as error:
        if device.type == "cuda" and cuda.is_lost(device):
            raise DeviceLost(f"{device} fails every call since {error!r}") from error
        raise


def _with_store(
    plan: LoadPlan,
    options: EngineOptions,
    checkpoint: Checkpoint,
    examined: Examined,
    model: LoadedModel,
    device: torch.device | None,
    memory: MemoryPlan,
    healer: Healer | None,
    hooks: DeviceHooks | None = None,
) -> Engine:
    """The engine of a loaded model; `device` is that of its tensors."""
    from inference.loading.tiers import TierBudgets, open_store

    host_bytes = min(options.host_budget_bytes, main_memory().total // HOST_SHARE)
    snapshot_bytes = getattr(model, "snapshot_bytes", 0)
    if snapshot_bytes != plan.demand.snapshot_bytes:
        memory = plan_memory(replace(plan.demand, snapshot_bytes=snapshot_bytes), memory.free)
        log.info("memory of %s with the measured snapshots, in bytes: %s", plan.device, memory)
    pages = memory.store - memory.snapshots
    budgets = TierBudgets(pages, host_bytes, options.cache_folder, options.cache_bytes, memory.snapshots)
    if fingerprint(checkpoint, "") != examined.identity:
        raise BadModel(f"{checkpoint.path} changed while it was read: load it again")
    arithmetic = f"{plan.dtype}, {options.weights} weights, {model.arithmetic}, midfill {own_version()}"
    identity = fingerprint(checkpoint, arithmetic)
    layout = getattr(model, "state_layout", None)
    store, prepare_store = open_store(budgets, model.kv_shape, device, identity, layout)
    if hooks is None:
        assert device is not None
        hooks = _hooks(device, model, prepare_store)
    return _wire(options, examined.tokenizer, healer, model, store, plan.device, memory, hooks, plan.placement)


def _hooks(device: torch.device, model: Model, prepare_store: Callable[[], bool]) -> DeviceHooks:
    if device.type != "cuda":
        return DeviceHooks()
    from inference.backends import cuda
    from inference.backends.llama.graphs import GraphedDecoder

    prepare_model = model.prepare if isinstance(model, GraphedDecoder) else DeviceHooks().prepare
    return DeviceHooks(lambda: prepare_store() or prepare_model(), partial(cuda.is_lost, device), cuda.give_memory_back)


def load_dry_engine(options: EngineOptions) -> Engine:
    """An engine that computes nothing, for counting tokens, forwards and bytes. Imports no torch.

    For a model outside the Llama family it imports transformers, and the bytes are an estimate.
    """
    checkpoint = find_checkpoint(options.model)
    tokenizer = checkpoint.tokenizer(options.fim_format)
    bytes_per_token = checkpoint.architecture.kv_values_per_token * DRY_BYTES_PER_VALUE
    context_tokens = _context_tokens(options, checkpoint.architecture)
    recurrent = checkpoint.architecture.recurrent_layers > 0

    def new_workspace() -> DryWorkspace:
        return DryWorkspace(bytes_per_token, Snapshots(FEWEST_SNAPSHOTS) if recurrent else None)

    model = DryModel(new_workspace, context_tokens, end_token=min(tokenizer.markers.end))
    budget = MOST_STORE if options.store_bytes is None else options.store_bytes  # counts are of no certain machine
    tiers = [Tier("device", budget, MemoryStorage())]
    snapshots = [SnapshotTier("snapshots", DRY_PROMPTS * FEWEST_SNAPSHOTS, MemoryStorage())] if recurrent else []
    store = PagedStore(tiers, bytes_per_token, snapshots)
    return _wire(options, tokenizer, _healer(options, tokenizer), model, store, "none", None, DeviceHooks(), None)


def _healer(options: EngineOptions, tokenizer: TextTokenizer) -> Healer | None:
    return Healer(tokenizer) if wants_healing(options.healing, tokenizer.format) else None


def _wire(
    options: EngineOptions,
    tokenizer: TextTokenizer,
    healer: Healer | None,
    model: Model,
    store: PagedStore,
    device: str,
    plan: MemoryPlan | None,
    hooks: DeviceHooks,
    placement: Placement | None,
) -> Engine:
    notice = f"runs on {placement}" if placement is not None and placement.is_slow else ""
    info = EngineInfo(options.model, device, model.context_tokens, chars_per_token(tokenizer), model.weights_bytes, notice)
    slots = plan.slots if plan else options.slots or 1
    config = EngineConfig(
        options.prefill_chunk,
        plan.prefill_chunk if plan else 0,
        slots,
        plan.kept if plan else slots,
        options.batching,
        options.speculation,
    )
    return Engine(info, model, tokenizer, store, config, healer, hooks)


def _check_memory(plan: LoadPlan, model: str) -> None:
    """BadModel for a model that does not fit the device's free memory: loading it would take that of other programs."""
    log.info("memory of %s, in bytes: %s", plan.device, plan.memory)
    if plan.lack:
        raise BadModel(f"{model}: {plan.lack}")


def _load_model(
    checkpoint: Checkpoint,
    context_tokens: int,
    device: torch.device,
    dtype: torch.dtype,
    options: EngineOptions,
    report: ReportProgress,
) -> Decoder | GraphedDecoder | GenericModel:
    """Our decoder if it supports the architecture; otherwise transformers' modules, on all devices as needed."""
    anywhere = options.device == "auto"
    shape = checkpoint.architecture
    if isinstance(shape, Architecture) and not shape.kernel_alone:
        from inference.loading.components import load_decoder

        return load_decoder(checkpoint, shape, context_tokens, device, dtype, options, report)
    if options.weights != "auto":
        reason = f"supported only for models that midfill's own decoders run here, not for {checkpoint.name}"
        raise BadInput(f"{options.weights} weights are {reason}")
    from inference.backends.generic import load_generic

    checkpoint.weights()  # reports missing or damaged files in our own words
    report("reading the weights", None)
    return load_generic(checkpoint.path, context_tokens, None if anywhere else device, dtype, fields=checkpoint.config)


def _set_threads(threads: int) -> None:
    """Set torch's threads, with 0 to half of those that this process may use.

    torch waits for its slowest thread, and the editor needs the other half. The kernel does not wait, and uses all.
    """
    import torch

    torch.set_num_threads(threads or max(1, usable_threads() // 2))


def _context_tokens(options: EngineOptions, architecture: ModelShape) -> int:
    """The requested context, limited to what the model was trained for."""
    if options.context_tokens < MIN_CONTEXT_TOKENS:
        raise BadInput(f"the context must be at least {MIN_CONTEXT_TOKENS} tokens, not {options.context_tokens}")
    return min(options.context_tokens, architecture.max_positions)


def chars_per_token(tokenizer: TextTokenizer) -> float:
    """Characters of source code per token, measured on one of our own files."""
    sample = SAMPLE.read_text(encoding="utf-8")
    return len(sample) / tokenizer.count_tokens(sample)
