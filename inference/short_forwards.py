"""A model whose short forwards are the CPU kernel's and whose long ones are torch's, on one workspace."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from inference.chunk import Chunk
from inference.decoder import Decoder
from inference.decoder_weights import DecoderWeights
from inference.healing_vocabulary import AllowedIds
from inference.kernel import KernelDecoder, unavailable_reason, unsupported_reason
from inference.kernel.limits import KV_DTYPES
from inference.kernel.packing import WeightType
from inference.model import Choice
from inference.rope import rotation_tables
from kv_store.workspace import KVWorkspace
from protocol.errors import BadInput

KernelMode = Literal["auto", "off", "int8"]

SHORT_TOKENS = 16
"""The longest forward that the kernel is given: beyond it, torch's matrix products are the quicker ones."""

log = logging.getLogger(__name__)


class ShortForwards:
    """Implements `Model`."""

    alignment = 1

    def __init__(self, decoder: Decoder, kernel: KernelDecoder) -> None:
        self._decoder = decoder
        self._kernel = kernel

    @property
    def workspace(self) -> KVWorkspace:
        return self._decoder.workspace

    @property
    def context_tokens(self) -> int:
        return self._decoder.context_tokens

    def prefill(self, token_ids: Sequence[int], start: int) -> None:
        if len(token_ids) > SHORT_TOKENS:
            self._decoder.prefill(token_ids, start)
        else:
            self._kernel.forward([Chunk(token_ids, start, self.workspace)])

    def choose_next(self, token_ids: Sequence[int], start: int, allowed: AllowedIds | None = None) -> Choice:
        if len(token_ids) > SHORT_TOKENS:
            return self._decoder.choose_next(token_ids, start, allowed)
        ((choice,),) = self._kernel.choices([Chunk(token_ids, start, self.workspace, 1, allowed)])
        return choice


def with_kernel(
    decoder: Decoder, config: Mapping[str, Any], weights: DecoderWeights, mode: KernelMode
) -> Decoder | ShortForwards:
    """The decoder with the kernel for its short forwards, where it can be had.

    "auto" gives the kernel weights of the decoder's dtype, "int8" smaller ones; BadInput where int8 is asked for and
    the kernel is not to be had.
    """
    if mode == "off":
        return decoder
    shape, workspace = decoder.architecture, decoder.workspace
    reason = _unusable_reason(decoder)
    if reason is not None and mode == "int8":
        raise BadInput(f"int8 weights need the CPU kernel: {reason}")
    if reason is not None:
        log.info("without the CPU kernel: %s", reason)
        return decoder
    weight_type: WeightType = "int8" if mode == "int8" else _weight_type(workspace.shape.dtype)
    tables = rotation_tables(shape, config, workspace.max_tokens, torch.float32, workspace.device)
    kernel = KernelDecoder(shape, weights, tables, weight_type, torch.get_num_threads())
    log.info("CPU kernel: %s weights, level %s", weight_type, kernel.level)
    return ShortForwards(decoder, kernel)


def _unusable_reason(decoder: Decoder) -> str | None:
    workspace = decoder.workspace
    if workspace.device.type != "cpu":
        return f"the model runs on {workspace.device}"
    if workspace.shape.dtype not in KV_DTYPES:
        return f"it computes no {workspace.shape.dtype}"
    return unsupported_reason(decoder.architecture) or unavailable_reason()


def _weight_type(dtype: torch.dtype) -> WeightType:
    return "bfloat16" if dtype == torch.bfloat16 else "float32"
