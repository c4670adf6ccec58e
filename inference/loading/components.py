"""Loads what needs torch: the decoder of a Llama-family model, on a GPU or where the CPU kernel does not run it."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.backends.cpu.model import unusable_reason
from inference.backends.layer_weights import StreamedWeights, WeightsReader
from inference.backends.llama.decoder import Decoder
from inference.backends.llama.graphs import GraphedDecoder
from inference.backends.llama.int4 import int4_weights
from inference.backends.llama.quantized import quantized
from inference.backends.llama.weights import DecoderWeights, GgufReader, TensorReader, read_decoder_weights
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import Checkpoint
from inference.checkpoints.gguf.file import GgufCheckpoint
from inference.checkpoints.hub import ReportProgress
from inference.loading.kernel import stored_reader
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
) -> Decoder | GraphedDecoder:
    """The model on one device; BadModel or BadInput, with the value at fault, if that is impossible."""
    if device.type == "cpu":
        name = str(dtype).removeprefix("torch.")
        reason = "the kernel is switched off" if not options.kernel else unusable_reason(shape, device.type, name)
        if options.weights in ("int8", "int4"):
            raise BadInput(f"{options.weights} weights need the CPU kernel: {reason}")
        log.info("the CPU kernel is not used: %s", reason)
    weights = _read_weights(checkpoint, shape, device, dtype, options.weights, report)
    decoder = Decoder(shape, checkpoint.config, weights, context_tokens)
    return GraphedDecoder(decoder) if device.type == "cuda" else decoder


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
        source = StreamedWeights(shape, stored_reader(checkpoint, shape, setting), progress)
        return int4_weights(source, device, tied=shape.tied_embeddings)
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
