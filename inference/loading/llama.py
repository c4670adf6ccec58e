"""Loads a model of the Llama family: reads its weights, quantizes them if requested, and chooses the backend."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from inference.backends.cpu.model import KernelModel, with_kernel
from inference.backends.cpu.threads import usable_cores
from inference.backends.llama.decoder import Decoder
from inference.backends.llama.exact import EXACT_TOKENS, ExactDecoder
from inference.backends.llama.graphs import GraphedDecoder
from inference.backends.llama.quantized import check_quantization, quantized
from inference.backends.llama.weights import DecoderWeights, TensorReader, read_decoder_weights
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import Checkpoint
from inference.checkpoints.hub import ReportProgress
from protocol.errors import BadInput
from protocol.settings import Weights

if TYPE_CHECKING:
    from inference.loading.options import EngineOptions


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
    if options.exact and options.weights != "auto":
        raise BadInput(f"{options.weights} weights and exact mode exclude each other: choose weights auto")
    if options.exact:
        context_tokens -= context_tokens % EXACT_TOKENS
    weights = _read_weights(checkpoint, shape, device, dtype, options.weights, report)
    if options.exact:
        return ExactDecoder(shape, checkpoint.config, weights, context_tokens)
    decoder = Decoder(shape, checkpoint.config, weights, context_tokens)
    if device.type == "cuda":
        return GraphedDecoder(decoder)
    if options.kernel:
        return with_kernel(decoder, checkpoint.config, weights, options.weights, options.threads or usable_cores())
    if options.weights == "int8":
        raise BadInput("int8 weights need the CPU kernel, which is switched off")
    return decoder


def _read_weights(
    checkpoint: Checkpoint,
    shape: Architecture,
    device: torch.device,
    dtype: torch.dtype,
    setting: Weights,
    report: ReportProgress,
) -> DecoderWeights:
    """The weights on the device; via main memory if quantized for a GPU, which may lack room for the originals."""
    scheme = setting if setting == "fp8" or (setting == "int8" and device.type == "cuda") else None
    if scheme is not None:
        check_quantization(scheme, device, dtype)
    reader = TensorReader(checkpoint.weights(), dtype, device if scheme is None else torch.device("cpu"))
    weights = read_decoder_weights(shape, reader, lambda share: report("reading the weights", share))
    if scheme is None:
        return weights
    report("quantizing the weights", None)
    return quantized(weights, scheme, device)
