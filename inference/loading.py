"""The one place that wires checkpoint, tokenizer, model, workspace and store into an engine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from inference.architecture import Architecture, ModelShape
from inference.checkpoint import Checkpoint, find_checkpoint, find_local_checkpoint, fingerprint
from inference.default_dtype import default_dtype
from inference.engine import Engine, EngineInfo, Policy
from inference.fim import AUTO
from inference.healing import Healer, HealingMode, wants_healing
from inference.hub import Progress
from inference.model import DryModel, Model
from inference.tokenization import TextTokenizer
from kv_store.dry_workspace import DryWorkspace
from kv_store.interface import KVStore
from kv_store.storage import MemoryStorage
from kv_store.store import PagedStore
from kv_store.tier import Tier
from protocol.errors import BadInput
from protocol.settings import BUNDLED_MODEL, Weights

if TYPE_CHECKING:
    import torch

    from inference.decoder import Decoder
    from inference.generic import GenericModel
    from inference.graphs import GraphedDecoder
    from inference.kernel_model import KernelModel

DTypeName = Literal["auto", "float32", "bfloat16", "float16"]

DEFAULT_CONTEXT_TOKENS = 8192
MIN_CONTEXT_TOKENS = 64
FEWEST_SLOTS, MOST_SLOTS = 2, 8  # by default; with one, a keystroke would wait for the whole of somebody's suggestion
SHARE_FOR_WEIGHTS = 0.85  # of a GPU's free memory
ROUNDED_SHARE = 0.5  # what 8 bits take of the 16 that checkpoints have
DRY_BYTES_PER_VALUE = 4  # float32, as a CPU would keep them

SAMPLE = Path(__file__).with_name("tokenization.py")


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How to load a model; "auto" and None stand for what suits the model and the machine."""

    model: str = BUNDLED_MODEL
    device: str = "auto"
    dtype: DTypeName = "auto"
    context_tokens: int | None = None  # longest prompt plus suggestion
    store_budget_bytes: int = 2**30  # of KV, on the device
    host_budget_bytes: int = 4 * 2**30  # of KV in main memory, where that is not the device's
    cache_folder: Path | None = None  # keeps KV, which tells of the text, across restarts
    cache_budget_bytes: int = 4 * 2**30
    prefill_chunk: int = 256  # tokens per forward, and so how long a cancellation, or another request, may wait
    slots: int | None = None  # workspaces: requests at work together; None takes as many as suit the store's budget
    batching: bool = True  # requests share forwards, as many as there are slots
    speculation: bool = True  # guesses at the text are verified in one forward
    threads: int | None = None  # of the CPU; None takes all cores for the kernel, half for torch
    exact: bool = False  # cached and cold logits the same to the bit, at the price of larger forwards
    fim_format: str = AUTO  # the name of one of inference.fim's, where it is not to be recognised
    healing: HealingMode = "auto"  # "auto" heals for models that were not trained on fragments
    weights: Weights = "auto"  # int8 and fp8 round them: see `inference.quantized`; int8 on a CPU is the kernel's own
    kernel: bool = True  # the CPU's, where it can be had


def is_here(options: EngineOptions) -> bool:
    """Whether the model is on this machine; otherwise loading it downloads it first.

    BadModel or BadInput for what can be told without torch: files that are missing or damaged, an architecture or a
    tokenizer that midfill cannot use.
    """
    checkpoint = find_local_checkpoint(options.model)
    if checkpoint is None:
        return False
    checkpoint.weights()
    checkpoint.tokenizer(options.fim_format)
    _context_tokens(options, checkpoint.architecture)
    return True


def load_engine(options: EngineOptions, progress: Progress | None = None) -> Engine:
    """An engine that runs the model of `options`; BadModel or BadInput, with the value at fault, if it cannot be."""
    report = progress or _ignore
    report("looking for the model", None)
    checkpoint = find_checkpoint(options.model, report)
    context_tokens = _context_tokens(options, checkpoint.architecture)
    report("reading the tokenizer", None)
    tokenizer = checkpoint.tokenizer(options.fim_format)
    report("starting torch", None)

    from inference.store_tiers import TierBudgets, open_store

    device = _device(options)
    dtype = _dtype(options, device, checkpoint.architecture)
    _set_threads(options.threads)
    model = _load_model(checkpoint, context_tokens, device, dtype, options, report)
    budgets = TierBudgets(
        options.store_budget_bytes, options.host_budget_bytes, options.cache_folder, options.cache_budget_bytes
    )
    identity = fingerprint(checkpoint, _numbers(options, device, dtype, checkpoint))
    store = open_store(budgets, model.kv_shape, model.device, identity)
    slots = _slots(options, model.kv_shape.bytes_per_token * model.context_tokens)
    return _wire(options, tokenizer, model, store, str(device), slots)


def load_dry_engine(options: EngineOptions) -> Engine:
    """An engine that does everything but compute: for counting tokens, forwards and bytes. Imports no torch.

    For a model outside the Llama family transformers is imported, and the bytes are an estimate.
    """
    checkpoint = find_checkpoint(options.model)
    tokenizer = checkpoint.tokenizer(options.fim_format)
    bytes_per_token = checkpoint.architecture.kv_values_per_token * DRY_BYTES_PER_VALUE
    context_tokens = _context_tokens(options, checkpoint.architecture)
    model = DryModel(lambda: DryWorkspace(bytes_per_token), context_tokens, end_token=min(tokenizer.markers.end))
    tier = Tier("device", options.store_budget_bytes, MemoryStorage())
    return _wire(options, tokenizer, model, PagedStore([tier], bytes_per_token), "none", slots=options.slots or 1)


def _wire(
    options: EngineOptions, tokenizer: TextTokenizer, model: Model, store: KVStore, device: str, slots: int
) -> Engine:
    info = EngineInfo(options.model, device, model.context_tokens, chars_per_token(tokenizer))
    healer = Healer(tokenizer) if wants_healing(options.healing, tokenizer.format) else None
    policy = Policy(options.prefill_chunk, slots, options.batching, options.speculation)
    return Engine(info, model, tokenizer, store, policy, healer)


def _slots(options: EngineOptions, workspace_bytes: int) -> int:
    """As many as asked for; else so many that they take half as much memory as the store may, within bounds."""
    if options.slots is None:
        return max(FEWEST_SLOTS, min(MOST_SLOTS, options.store_budget_bytes // 2 // workspace_bytes))
    if options.slots < 1:
        raise BadInput(f"{options.slots} slots: it has to be 1 or more")
    return options.slots


def _load_model(
    checkpoint: Checkpoint,
    context_tokens: int,
    device: torch.device,
    dtype: torch.dtype,
    options: EngineOptions,
    report: Progress,
) -> Decoder | GraphedDecoder | KernelModel | GenericModel:
    """Our decoder where it knows the architecture and the device has room; transformers' modules otherwise."""
    anywhere = options.device == "auto"
    shape = checkpoint.architecture
    if isinstance(shape, Architecture) and not (anywhere and _is_too_large(checkpoint, device, options.weights)):
        from inference.decoder_loading import load_decoder

        return load_decoder(checkpoint, shape, context_tokens, device, dtype, options, report)
    if options.exact or options.weights != "auto":
        what = "exact mode is" if options.exact else f"{options.weights} weights are"
        raise BadInput(f"{what} for the Llama family on one device, not for {checkpoint.name}")
    from inference.generic_loading import load_generic

    checkpoint.weights()  # says what is missing or damaged in words of ours
    report("reading the weights", None)
    return load_generic(checkpoint.folder, context_tokens, None if anywhere else device, dtype)


def _numbers(options: EngineOptions, device: torch.device, dtype: torch.dtype, checkpoint: Checkpoint) -> str:
    """What else saved KV depends on; what transformers keeps of a token is its own affair, version by version."""
    if not isinstance(checkpoint.architecture, Architecture):
        return f"{dtype}, transformers {version('transformers')}"
    return str(dtype) if options.weights == "auto" else f"{dtype}, {options.weights} weights of a {device.type}"


def _is_too_large(checkpoint: Checkpoint, device: torch.device, weights: Weights) -> bool:
    """Whether the weights leave a GPU too little room for KV and forwards; other devices are not asked."""
    import torch

    if device.type != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info(device)
    share = 1.0 if weights == "auto" else ROUNDED_SHARE
    return share * sum(file.size for file in checkpoint.weights()) > SHARE_FOR_WEIGHTS * free


def _device(options: EngineOptions) -> torch.device:
    import torch

    if options.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(options.device)
    except RuntimeError as error:
        raise BadInput(f"no device {options.device!r}: it is auto, cpu, cuda, cuda:N or mps") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise BadInput(f"no device {options.device!r} on this machine: torch finds no CUDA")
    return device


def _dtype(options: EngineOptions, device: torch.device, shape: ModelShape) -> torch.dtype:
    import torch

    names = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    name = options.dtype
    if name == "auto":
        name = default_dtype(device.type, shape, may_use_kernel=options.kernel and not options.exact)
    if name not in names:
        raise BadInput(f"no dtype {name!r}: it is auto, {', '.join(names)}")
    return names[name]


def _set_threads(threads: int | None) -> None:
    """Of torch; half the cores by default: it waits for its slowest thread, and the editor needs the other half.

    The kernel does not wait, so it has all of them.
    """
    import torch

    if threads is not None and threads < 1:
        raise BadInput(f"{threads} threads: it has to be 1 or more")
    torch.set_num_threads(threads or max(1, (os.cpu_count() or 1) // 2))


def _context_tokens(options: EngineOptions, architecture: ModelShape) -> int:
    """As asked for, but no more than the model was made for."""
    wanted = DEFAULT_CONTEXT_TOKENS if options.context_tokens is None else options.context_tokens
    if wanted < MIN_CONTEXT_TOKENS:
        raise BadInput(f"a context of {wanted} tokens: it has to be at least {MIN_CONTEXT_TOKENS}")
    return min(wanted, architecture.max_positions)


def chars_per_token(tokenizer: TextTokenizer) -> float:
    """How many characters of source code a token stands for, measured on a file of our own."""
    sample = SAMPLE.read_text(encoding="utf-8")
    return len(sample) / tokenizer.count_tokens(sample)


def _ignore(what: str, share: float | None) -> None:
    """Nobody wants to know."""
