"""Runs a model on the CPU kernel, in calls of at most MAX_NEW_TOKENS tokens."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from inference.backends.cpu.decoder import KV_DTYPES, MAX_NEW_TOKENS, KernelDecoder
from inference.backends.cpu.library import library_digest, unavailable_reason, unsupported_reason
from inference.backends.cpu.packing import WeightType
from inference.backends.cpu.stored import Matrix
from inference.backends.layer_weights import WeightsSource
from inference.backends.model import Choice, Chunk
from inference.backends.rotation import rotations
from inference.checkpoints.architecture import Architecture
from kv_store.interface import Workspace
from kv_store.main_memory import ArrayWorkspace, KVShape
from kv_store.snapshots import Snapshots, budget_of_a_slot

if TYPE_CHECKING:
    from inference.backends.cpu.recurrent_workspace import RecurrentWorkspace
    from inference.backends.llama.decoder import Decoder
    from kv_store.workspace import StateLayout

FLOAT_BYTES = 4

log = logging.getLogger(__name__)


class KernelModel:
    """Implements `Model`.

    KV and choices depend bitwise on the preceding tokens alone, not on the other chunks of a forward nor on how a
    prompt is cut into chunks: resident and recomputed KV are equal. With `for_long_chunks`, which is faster there than
    level "portable", they are equal only within rounding.
    """

    def __init__(self, kernel: KernelDecoder, context_tokens: int, kv_dtype: str, for_long_chunks: Decoder | None = None) -> None:
        shape = kernel.architecture
        self._kernel = kernel
        self._for_long_chunks = for_long_chunks
        self.context_tokens = context_tokens
        self.kv_shape = KVShape(shape.kv_layers or shape.layers, shape.kv_heads, shape.head_dim, kv_dtype)
        self._state_values = sum(map(shape.state_values, shape.layer_kinds))
        self.snapshot_bytes = self._state_values * FLOAT_BYTES
        """Of one snapshot of the recurrent layers; 0 for a model without any."""

    @property
    def keeps_arrays(self) -> bool:
        """Whether workspaces keep their KV as arrays, without torch, which other layers and other chunks need."""
        return not self.snapshot_bytes and self._for_long_chunks is None

    @property
    def state_layout(self) -> StateLayout | None:
        if not self.snapshot_bytes:
            return None
        import torch

        from kv_store.workspace import StateLayout

        return StateLayout((((self._state_values,), torch.device("cpu")),))

    @property
    def arithmetic(self) -> str:
        """A name for all that KV depends on besides checkpoint and dtypes."""
        long_chunks = "" if self._for_long_chunks is None else f", long chunks by {self._for_long_chunks.arithmetic}"
        return f"CPU kernel {library_digest()}, level {self._kernel.level}{long_chunks}"

    @property
    def weights_bytes(self) -> int:
        also = 0 if self._for_long_chunks is None else self._for_long_chunks.weights_bytes
        return self._kernel.weights_bytes + also

    def new_workspace(self) -> Workspace:
        if self.keeps_arrays:
            return ArrayWorkspace(self.kv_shape, self.context_tokens)
        from inference.backends.cpu.recurrent_workspace import RecurrentWorkspace
        from kv_store.workspace import KVWorkspace

        if not self.snapshot_bytes:
            return KVWorkspace(self.kv_shape, self.context_tokens)
        snapshots = Snapshots(budget_of_a_slot(self.snapshot_bytes))
        return RecurrentWorkspace(self.kv_shape, self.context_tokens, self._state_values, snapshots)

    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        answers: dict[int, tuple[Choice, ...]] = {}  # by index of the chunk
        for places in _calls(chunks):
            together = [chunks[place] for place in places]
            answers |= zip(places, self._choices(together), strict=True)
            for chunk in together:
                if chunk.workspace.snapshots is not None:
                    cast("RecurrentWorkspace", chunk.workspace).keep()
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
        answered = max(0, chunk.wanted - behind - wanted)
        forced = chunk.forced[answered : answered + wanted]
        yield replace(chunk, token_ids=token_ids, start=chunk.start + first, wanted=wanted, forced=forced)


def load_kernel_model(
    shape: Architecture,
    config: Mapping[str, Any],
    weights: WeightsSource[Matrix],
    weight_type: WeightType,
    kv_dtype: str,
    context_tokens: int,
    threads: int,
    *,
    is_whole: bool = False,
) -> KernelModel:
    """The model on the kernel, which packs the weights matrix by matrix; those that are quantized keep their type.

    At level "portable", torch computes long chunks from `weights` if they are whole, `DecoderWeights`; otherwise `weights` are
    not kept. Raises KernelUnavailable if `unusable_reason` gives a reason.
    """
    kernel = KernelDecoder(shape, weights, rotations(shape, config, context_tokens), weight_type, threads)
    log.info("CPU kernel: %s weights, level %s, %d threads", weight_type, kernel.level, threads)
    if kernel.level == "portable" and is_whole and not shape.kernel_alone:
        from inference.backends.llama.decoder import Decoder

        return KernelModel(kernel, context_tokens, kv_dtype, Decoder(shape, config, cast(Any, weights), context_tokens))
    return KernelModel(kernel, context_tokens, kv_dtype)


def unusable_reason(shape: Architecture, device: str, kv_dtype: str) -> str | None:
    """Why the kernel cannot compute this model; None if it can."""
    if device != "cpu":
        return f"the model runs on {device}"
    if kv_dtype not in KV_DTYPES:
        return f"the kernel does not support {kv_dtype}"
    return unsupported_reason(shape) or unavailable_reason()
