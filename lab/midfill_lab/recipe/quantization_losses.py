"""Measures what each choice of GGUF types costs a model: size of the weights, and held-out losses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from inference.checkpoints.checkpoint import find_checkpoint
from midfill_lab.training.corpus.corpus import Corpus
from midfill_lab.training.corpus.vocabulary import load_vocabulary
from midfill_lab.training.hardware import multiplies_bf16
from midfill_lab.training.optimization.rounding import kind_of, round_trip
from midfill_lab.training.options import BITS, Quantization
from midfill_lab.training.run.format_losses import FormatLoss, format_losses

FLOAT_BITS = 32
BATCH = 6


@dataclass(frozen=True)
class QuantizationLoss:
    """One choice of types; `quantization` is None for the model as it is, in float32 or bfloat16."""

    quantization: Quantization | None
    num_bytes: int
    losses: tuple[FormatLoss, ...]


@torch.no_grad()
def quantization_losses(
    model: str, corpus: Path, quantizations: Sequence[Quantization | None], *, samples: int, window: int
) -> Iterator[QuantizationLoss]:
    """Measure the model, by name or folder, under each choice, on the same examples."""
    checkpoint = find_checkpoint(model)
    vocabulary = load_vocabulary(checkpoint.folder / "tokenizer.json", checkpoint.tokenizer().format.name)
    loaded: nn.Module = AutoModelForCausalLM.from_pretrained(checkpoint.folder, dtype=torch.float32)
    originals = {name: weight.detach().clone() for name, weight in loaded.named_parameters()}
    held_out = Corpus(corpus, "held_out")
    is_fast = multiplies_bf16(torch.device("cpu"))
    for quantization in quantizations:
        for name, weight in loaded.named_parameters():
            kind = kind_of(name, weight, quantization) if quantization else None
            weight.copy_(originals[name] if kind is None else round_trip(originals[name], kind))
        with torch.autocast("cpu", torch.bfloat16, enabled=is_fast):
            losses = format_losses(loaded, held_out, vocabulary, samples=samples, window=window, batch=BATCH)
        yield QuantizationLoss(quantization, size_of(loaded, quantization), losses)


def size_of(model: nn.Module, quantization: Quantization | None) -> int:
    """Bytes of the weights in a file; without a quantization matrices count 16 bits."""
    bits = 0.0
    for name, weight in model.named_parameters():
        kind = kind_of(name, weight, quantization) if quantization else None
        bits += weight.numel() * (BITS[kind] if kind else 16 if weight.ndim == 2 else FLOAT_BITS)
    return round(bits / 8)
