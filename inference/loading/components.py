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
from inference.backends.cpu.stored import Matrix, QuantizedGgufReader
from inference.backends.llama.decoder import Decoder
from inference.backends.llama.graphs import GraphedDecoder
from inference.backends.llama.int4 import int4_weights
from inference.backends.llama.quantized import quantized
from inference.backends.llama.weights import (
    DecoderWeights,
    GgufReader,
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
from kv_store.disk import PageFolder, SnapshotFiles
from kv_store.interface import StoreError
from kv_store.page_snapshots import SnapshotTier
from kv_store.page_tree import PAGE_TOKENS
from kv_store.store import PagedStore
from kv_store.tiers import MemoryStorage, Tier
from kv_store.workspace import HostSnapshots, HostStorage, KVShape, StateCodec, StateLayout, TensorCodec, TensorStorage
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
    return GraphedDecoder(decoder) if device.type == "cuda" else decoder


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
        helps = stored and choose_level(None) == "portable" and not shape.kernel_alone
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
    progress = partial(report, "reading the weights")
    if setting == "int4":
        quantized_reader: WeightsReader[Matrix] = (
            _quantized_reader(checkpoint, shape, dtype, setting)
            if isinstance(checkpoint, GgufCheckpoint)
            else TensorReader(checkpoint.weights(), None, torch.device("cpu"))
        )
        return int4_weights(StreamedWeights(shape, quantized_reader, progress), device, tied=shape.tied_embeddings)
    first = device if setting == "auto" else torch.device("cpu")
    if isinstance(checkpoint, GgufCheckpoint):
        reader: WeightsReader[Tensor] = GgufReader(checkpoint.weights(), shape, dtype, first)
    else:
        reader = TensorReader(checkpoint.weights(), dtype, first)
    weights = read_decoder_weights(shape, reader, progress)
    if setting == "auto":
        return weights
    report("quantizing the weights", None)
    return quantized(weights, setting, device)


@dataclass(frozen=True, slots=True)
class TierBudgets:
    """Bytes of KV per tier, and the folder of the disk tier, if any.

    The states of recurrent layers have the same share of each other tier as `snapshots_bytes` are of the device's.
    """

    device_bytes: int
    host_bytes: int
    folder: Path | None
    folder_bytes: int
    snapshots_bytes: int = 0  # beside the device's

    def of_snapshots(self, tier_bytes: int) -> int:
        return tier_bytes * self.snapshots_bytes // max(1, self.device_bytes + self.snapshots_bytes)


def open_store(
    budgets: TierBudgets, shape: KVShape, device: torch.device, fingerprint: str, layout: StateLayout | None = None
) -> tuple[PagedStore, Callable[[], bool]]:
    """The store of a model, and a step of its idle work, which is False if none is left.

    Pages that an earlier process saved in the folder are resident from the start. Keeps nothing on disk if the folder
    is unusable even after setting aside the file in its place. Without the `layout` of their states, snapshots stay on
    the device.
    """
    prepare: Callable[[], bool] = lambda: False  # noqa: E731
    memory, snapshots = [Tier("device", budgets.device_bytes, TensorStorage(device))], list[SnapshotTier]()
    if budgets.snapshots_bytes:
        snapshots.append(SnapshotTier("snapshots", budgets.snapshots_bytes, MemoryStorage()))
    if device.type != "cpu":
        host_bytes = budgets.host_bytes
        if layout is not None and (of_snapshots := budgets.of_snapshots(host_bytes)):
            snapshots.append(SnapshotTier("snapshots on the host", of_snapshots, HostSnapshots(layout)))
            host_bytes -= of_snapshots
        host = TensorStorage("cpu")
        if device.type == "cuda":
            host = HostStorage(PAGE_TOKENS * shape.bytes_per_token, host_bytes)
            prepare = host.prepare
        memory.append(Tier("host", host_bytes, host))
    with ExitStack() as on_failure:
        if budgets.folder is not None and budgets.folder_bytes:
            try:
                folder = PageFolder(budgets.folder, fingerprint, TensorCodec(shape))
                on_failure.callback(folder.close)
                of_snapshots = 0 if layout is None else budgets.of_snapshots(budgets.folder_bytes)
                saved = []
                if layout is not None and of_snapshots:
                    files = SnapshotFiles(folder, StateCodec(layout))
                    saved = [SnapshotTier("snapshots on disk", of_snapshots, files)]
                tiers = [*memory, Tier("disk", budgets.folder_bytes - of_snapshots, folder)]
                store = PagedStore(tiers, shape.bytes_per_token, [*snapshots, *saved])
            except (StoreError, OSError) as error:
                log.warning("the store keeps nothing on disk: %s", error)
            else:
                on_failure.pop_all()
                return store, prepare
    return PagedStore(memory, shape.bytes_per_token, snapshots), prepare
