"""Loads a model onto the CPU kernel; imports torch only where torch computes long chunks."""

from __future__ import annotations

from functools import partial

from inference.backends.cpu.library import choose_level, usable_cores
from inference.backends.cpu.model import KernelModel, load_kernel_model
from inference.backends.cpu.packing import WeightType
from inference.backends.cpu.stored import Matrix, StoredReader
from inference.backends.layer_weights import FileTensors, GgufTensors, StreamedWeights, WeightsSource
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import Checkpoint
from inference.checkpoints.gguf.file import GgufCheckpoint
from inference.checkpoints.hub import ReportProgress
from inference.checkpoints.tensors import stored_name
from inference.loading.options import EngineOptions, has_torch
from protocol.settings import Weights


def load_on_kernel(
    checkpoint: Checkpoint, shape: Architecture, context_tokens: int, dtype: str, options: EngineOptions, report: ReportProgress
) -> KernelModel:
    """Reads one layer at a time, unless torch must help; the kernel quantizes the values of the file, unrounded."""
    weight_type: WeightType = "bfloat16" if dtype == "bfloat16" else "float32"
    if options.weights == "int8" or options.weights == "int4":
        weight_type = options.weights
    progress = partial(report, "reading the weights")
    weights: WeightsSource[Matrix] = StreamedWeights(shape, stored_reader(checkpoint, shape, options.weights), progress)
    is_whole = is_computed_by_torch(checkpoint, shape, options.weights)
    if is_whole:
        import torch

        from inference.backends.llama.weights import TensorReader, read_decoder_weights

        name_of = partial(stored_name, shape)
        reader = TensorReader(checkpoint.weights(), getattr(torch, dtype), torch.device("cpu"), name_of)
        weights = read_decoder_weights(shape, reader, progress)
    threads = options.threads or usable_cores()
    return load_kernel_model(shape, checkpoint.config, weights, weight_type, dtype, context_tokens, threads, is_whole=is_whole)


def is_computed_by_torch(checkpoint: Checkpoint, shape: Architecture, setting: Weights) -> bool:
    """Whether torch computes long chunks, since this CPU has only the level "portable"; not where torch is missing."""
    is_plain = setting == "auto" and not isinstance(checkpoint, GgufCheckpoint) and not shape.kernel_alone
    return is_plain and choose_level(None) == "portable" and has_torch()


def stored_reader(checkpoint: Checkpoint, shape: Architecture, setting: Weights) -> StoredReader:
    """ "auto" keeps the types of the file; another setting quantizes the matrices that do not have its type."""
    files = checkpoint.weights()
    is_gguf = isinstance(checkpoint, GgufCheckpoint)
    tensors = GgufTensors(files, shape) if is_gguf else FileTensors(files, partial(stored_name, shape))
    return StoredReader(tensors, setting if setting == "int8" or setting == "int4" else None)
