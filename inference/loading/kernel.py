"""Loads a model onto the CPU kernel; imports torch only for weights that are not stored as the kernel multiplies them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from inference.backends.cpu.library import choose_level, usable_cores
from inference.backends.cpu.model import KernelModel, load_kernel_model
from inference.backends.cpu.packing import WeightType
from inference.backends.cpu.stored import Matrix, QuantizedGgufReader
from inference.backends.layer_weights import StreamedWeights, WeightsSource
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import Checkpoint
from inference.checkpoints.gguf.file import GgufCheckpoint
from inference.checkpoints.hub import ReportProgress
from inference.checkpoints.tensors import stored_name
from protocol.settings import Weights

if TYPE_CHECKING:
    from inference.loading.options import EngineOptions


def load_on_kernel(
    checkpoint: Checkpoint, shape: Architecture, context_tokens: int, dtype: str, options: EngineOptions, report: ReportProgress
) -> KernelModel:
    """Reads one layer at a time, unless torch must help; the kernel quantizes the values of the file, unrounded."""
    weight_type: WeightType = "bfloat16" if dtype == "bfloat16" else "float32"
    if options.weights == "int8" or options.weights == "int4":
        weight_type = options.weights
    progress = partial(report, "reading the weights")
    weights: WeightsSource[Matrix]
    is_whole = False
    if isinstance(checkpoint, GgufCheckpoint):
        weights = StreamedWeights(shape, quantized_reader(checkpoint, shape, dtype, options.weights), progress)
    else:
        import torch

        from inference.backends.llama.weights import TensorReader, read_decoder_weights

        stored = getattr(torch, dtype) if options.weights == "auto" else None
        reader = TensorReader(checkpoint.weights(), stored, torch.device("cpu"), partial(stored_name, shape))
        is_whole = stored is not None and choose_level(None) == "portable" and not shape.kernel_alone
        read = read_decoder_weights if is_whole else StreamedWeights
        weights = read(shape, reader, progress)
    threads = options.threads or usable_cores()
    return load_kernel_model(shape, checkpoint.config, weights, weight_type, dtype, context_tokens, threads, is_whole=is_whole)


def quantized_reader(checkpoint: GgufCheckpoint, shape: Architecture, dtype: str, setting: Weights) -> QuantizedGgufReader:
    """ "auto" keeps the types of the file; another setting quantizes the matrices that do not have its type."""
    files = checkpoint.weights()
    if setting == "int8" or setting == "int4":
        return QuantizedGgufReader(files, shape, "float32", only=setting)
    return QuantizedGgufReader(files, shape, dtype)
