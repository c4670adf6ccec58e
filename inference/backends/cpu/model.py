"""Runs a model on the CPU kernel, in calls of at most MAX_NEW_TOKENS tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from inference.backends.chunk import Chunk
from inference.backends.cpu.decoder import KernelDecoder
from inference.backends.cpu.library import unavailable_reason
from inference.backends.cpu.limits import KV_DTYPES, MAX_NEW_TOKENS
from inference.backends.cpu.packing import WeightType
from inference.backends.cpu.support import unsupported_reason
from inference.backends.llama.decoder import Decoder
from inference.backends.llama.rope import rotation_tables
from inference.backends.llama.weights import DecoderWeights
from inference.backends.model import Choice
from kv_store.workspace import KVWorkspace
from protocol.errors import BadInput
from protocol.settings import Weights

log = logging.getLogger(__name__)


class KernelModel:
    """Implements `Model`.

    KV and choices depend bitwise on the preceding tokens alone, not on the other chunks of a forward nor on how a
    prompt is cut into chunks: resident and recomputed KV are equal. At level "portable" torch computes long chunks,
    which makes them equal only within rounding. At other levels the decoder's weights are freed, since the kernel has
    them packed.
    """

    alignment = 1

    def __init__(self, decoder: Decoder, kernel: KernelDecoder) -> None:
        self._kernel = kernel
        self._for_long_chunks = decoder if kernel.level == "portable" else None
        self.context_tokens = decoder.context_tokens
        self.kv_shape = decoder.kv_shape
        self.device = decoder.device

    def new_workspace(self) -> KVWorkspace:
        return KVWorkspace(self.kv_shape, self.context_tokens, self.device)

    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        answers: dict[int, tuple[Choice, ...]] = {}  # by index of the chunk
        for places in _calls(chunks):
            together = [chunks[place] for place in places]
            answers |= zip(places, self._choices(together), strict=True)
        return [answers[place] for place in range(len(chunks))]

    def _choices(self, together: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        if together[0].is_short:
            return self._kernel.choices(together)
        if self._for_long_chunks is not None:
            return self._for_long_chunks.forward(together)
        (chunk,) = together
        return [tuple(choice for piece in _pieces(chunk) for choice in self._kernel.choices([piece])[0])]


def _calls(chunks: Sequence[Chunk]) -> Iterator[list[int]]:
    """The indices of chunks to compute together: short ones up to the kernel's limit; others alone."""
    together: list[int] = []
    tokens = 0
    for place, chunk in enumerate(chunks):
        count = len(chunk.token_ids)
        if not chunk.is_short or chunk.needs_logits:
            yield [place]
            continue
        if tokens + count > MAX_NEW_TOKENS:
            yield together
            together, tokens = [], 0
        together.append(place)
        tokens += count
    if together:
        yield together


def _pieces(chunk: Chunk) -> Iterator[Chunk]:
    """The chunk cut into chunks within the kernel's limit."""
    for first in range(0, len(chunk.token_ids), MAX_NEW_TOKENS):
        token_ids = chunk.token_ids[first : first + MAX_NEW_TOKENS]
        behind = len(chunk.token_ids) - first - len(token_ids)
        wanted = min(max(chunk.wanted - behind, 0), len(token_ids))
        yield replace(chunk, token_ids=token_ids, start=chunk.start + first, wanted=wanted)


def with_kernel(
    decoder: Decoder, config: Mapping[str, Any], weights: DecoderWeights, setting: Weights, threads: int
) -> Decoder | KernelModel:
    """The model on the kernel; the decoder itself if the kernel is unavailable.

    "auto" keeps the decoder's dtype; "int8" quantizes the weights, and raises BadInput without the kernel.
    """
    shape = decoder.architecture
    reason = _unusable_reason(decoder)
    if reason is not None and setting == "int8":
        raise BadInput(f"int8 weights need the CPU kernel: {reason}")
    if reason is not None:
        log.info("the CPU kernel is not used: %s", reason)
        return decoder
    weight_type: WeightType = "int8" if setting == "int8" else _weight_type(decoder.kv_shape.dtype)
    tables = rotation_tables(shape, config, decoder.context_tokens, torch.float32, decoder.device)
    kernel = KernelDecoder(shape, weights, tables, weight_type, threads)
    log.info("CPU kernel: %s weights, level %s, %d threads", weight_type, kernel.level, threads)
    return KernelModel(decoder, kernel)


def _unusable_reason(decoder: Decoder) -> str | None:
    if decoder.device.type != "cpu":
        return f"the model runs on {decoder.device}"
    if decoder.kv_shape.dtype not in KV_DTYPES:
        return f"the kernel does not support {decoder.kv_shape.dtype}"
    return unsupported_reason(decoder.architecture) or unavailable_reason()


def _weight_type(dtype: torch.dtype) -> WeightType:
    return "bfloat16" if dtype == torch.bfloat16 else "float32"
