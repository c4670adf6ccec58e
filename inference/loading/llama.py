"""Loads a model of the Llama family: reads its weights, quantizes them if requested, and chooses the backend."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.backends.cpu.library import choose_level
from inference.backends.cpu.model import KernelModel, load_kernel_model, unusable_reason
from inference.backends.cpu.packing import WeightType
from inference.backends.cpu.threads import usable_cores
from inference.backends.llama.decoder import Decoder
from inference.backends.llama.gguf_weights import GgufReader, QuantizedGgufReader
from inference.backends.llama.graphs import GraphedDecoder
from inference.backends.llama.quantized import quantized
from inference.backends.llama.weights import (
    DecoderWeights,
    Matrix,
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
        reader = TensorReader(checkpoint.weights(), stored, torch.device("cpu"))
        read = read_decoder_weights if stored and choose_level(None) == "portable" else StreamedWeights
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
