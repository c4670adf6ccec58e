"""Components of an engine that need torch: the decoder of a Llama-family model, and the tiers of its store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.backends.cpu.library import choose_level, usable_cores
from inference.backends.cpu.model import KernelModel, load_kernel_model, unusable_reason
from inference.backends.cpu.packing import WeightType
from inference.backends.llama.decoder import Decoder
from inference.backends.llama.graphs import GraphedDecoder
from inference.backends.llama.quantized import quantized
from inference.backends.llama.weights import (
    DecoderWeights,
    GgufReader,
    Matrix,
    QuantizedGgufReader,
    StreamedWeights,
    TensorReader,
    WeightsReader,
    WeightsSource,
    read_decoder_weights,
)
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import Checkpoint
from inference.checkpoints.gguf.file import GgufCheckpoint
from inference.checkpoints.hub import ReportProgress
from inference.checkpoints.tensors import stored_name
from kv_store.disk import PageFolder
from kv_store.interface import StoreError
from kv_store.page_tree import PAGE_TOKENS
from kv_store.store import PagedStore
from kv_store.tiers import Tier
from kv_store.workspace import HostStorage, KVShape, TensorCodec, TensorStorage
from protocol.errors import BadInput
from protocol.settings import Weights

if TYPE_CHECKING:
    from inference.loading.options import EngineOptions


log = logging.getLogger(__name__)


def load_decoder(
    checkpoint: Checkpoint,
    shape: Architecture,
    context_tokens: int,
    device: torch.device,
    dtype: torch.dtype,
    options: EngineOptions,
    report: ReportProgress,
) -> Decoder | GraphedDecoder | KernelModel:
    """The model on one device; BadModel or BadInput, with the value at fault, if that is impossible."""
    reason = "the kernel is switched off" if not options.kernel else unusable_reason(shape, device, dtype)
    if device.type == "cpu":
        if reason is None and options.weights != "fp8":
            return _load_on_kernel(checkpoint, shape, context_tokens, dtype, options, report)
        if options.weights in ("int8", "int4"):
            raise BadInput(f"{options.weights} weights need the CPU kernel: {reason}")
        log.info("the CPU kernel is not used: %s", reason)
    weights = _read_weights(checkpoint, shape, device, dtype, options.weights, report)
    decoder = Decoder(shape, checkpoint.config, weights, context_tokens)
    return GraphedDecoder(decoder, split_attention=options.split_attention) if device.type == "cuda" else decoder


def _load_on_kernel(
    checkpoint: Checkpoint,
    shape: Architecture,
    context_tokens: int,
    dtype: torch.dtype,
    options: EngineOptions,
    report: ReportProgress,
) -> KernelModel:
    """Reads one layer at a time, unless torch must help; the kernel quantizes the values of the file, unrounded."""
    weight_type: WeightType = "bfloat16" if dtype == torch.bfloat16 else "float32"
    if options.weights == "int8" or options.weights == "int4":
        weight_type = options.weights
    progress = partial(report, "reading the weights")
    weights: WeightsSource[Matrix]
    if isinstance(checkpoint, GgufCheckpoint):
        weights = StreamedWeights(shape, _quantized_reader(checkpoint, shape, dtype, options.weights), progress)
    else:
        stored = dtype if options.weights == "auto" else None
        reader = TensorReader(checkpoint.weights(), stored, torch.device("cpu"), partial(stored_name, shape))
        helps = stored and choose_level(None) == "portable" and not shape.layer_kinds
        read = read_decoder_weights if helps else StreamedWeights
        weights = read(shape, reader, progress)
    threads = options.threads or usable_cores()
    return load_kernel_model(shape, checkpoint.config, weights, weight_type, dtype, context_tokens, threads)


def _quantized_reader(
    checkpoint: GgufCheckpoint, shape: Architecture, dtype: torch.dtype, setting: Weights
) -> QuantizedGgufReader:
    """ "auto" keeps the types of the file; another setting quantizes the matrices that do not have its type."""
    files = checkpoint.weights()
    if setting == "int8" or setting == "int4":
        return QuantizedGgufReader(files, shape, torch.float32, only=setting)
    return QuantizedGgufReader(files, shape, dtype)


def _read_weights(
    checkpoint: Checkpoint,
    shape: Architecture,
    device: torch.device,
    dtype: torch.dtype,
    setting: Weights,
    report: ReportProgress,
) -> DecoderWeights:
    """The weights on the device; via main memory if quantized for a GPU, which may lack room for the originals."""
    first = device if setting == "auto" else torch.device("cpu")
    if isinstance(checkpoint, GgufCheckpoint):
        reader: WeightsReader[Tensor] = GgufReader(checkpoint.weights(), shape, dtype, first)
    else:
        reader = TensorReader(checkpoint.weights(), dtype, first)
    weights = read_decoder_weights(shape, reader, partial(report, "reading the weights"))
    if setting == "auto":
        return weights
    report("quantizing the weights", None)
    return quantized(weights, setting, device)


@dataclass(frozen=True, slots=True)
class TierBudgets:
    """Bytes of KV per tier, and the folder of the disk tier, if any."""

    device_bytes: int
    host_bytes: int
    folder: Path | None
    folder_bytes: int
    snapshots_bytes: int = 0  # of states of recurrent layers, beside the tiers


def open_store(
    budgets: TierBudgets, shape: KVShape, device: torch.device, fingerprint: str
) -> tuple[PagedStore, Callable[[], bool]]:
    """The store of a model, and a step of its idle work, which is False if none is left.

    Pages that an earlier process saved in the folder are resident from the start. Keeps nothing on disk if the folder
    is unusable even after setting aside the file in its place.
    """
    prepare: Callable[[], bool] = lambda: False  # noqa: E731
    memory = [Tier("device", budgets.device_bytes, TensorStorage(device))]
    if device.type == "cuda":
        host = HostStorage(PAGE_TOKENS * shape.bytes_per_token, budgets.host_bytes)
        prepare = host.prepare
        memory.append(Tier("host", budgets.host_bytes, host))
    elif device.type != "cpu":
        memory.append(Tier("host", budgets.host_bytes, TensorStorage("cpu")))
    with ExitStack() as on_failure:
        if budgets.folder is not None and budgets.folder_bytes:
            try:
                folder = PageFolder(budgets.folder, fingerprint, TensorCodec(shape))
                on_failure.callback(folder.close)
                tiers = [*memory, Tier("disk", budgets.folder_bytes, folder)]
                store = PagedStore(tiers, shape.bytes_per_token, budgets.snapshots_bytes)
            except (StoreError, OSError) as error:
                log.warning("the store keeps nothing on disk: %s", error)
            else:
                on_failure.pop_all()
                return store, prepare
    return PagedStore(memory, shape.bytes_per_token, budgets.snapshots_bytes), prepare
