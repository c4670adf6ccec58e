"""Records the decoder's short forwards ahead of need as CUDA graphs over static buffers, and replays them.

At batch 1 a GPU computes a layer's matrices faster than the CPU can launch their kernels one by one; a graph is one
launch. It requires fixed shapes at fixed addresses. So tokens and visible positions are padded to buckets, with one
graph per workspace and pair of buckets. A forward without a recorded graph runs the decoder's own kernels, since
recording takes longer than a keystroke may.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import torch

from inference.backends import cuda
from inference.backends.chunk import Chunk
from inference.backends.cuda import Replay
from inference.backends.llama.decoder import Decoder, Span
from inference.backends.model import Choice
from inference.backends.sampling import best_tokens, choices, choose
from kv_store.workspace import KVWorkspace

TOKEN_BUCKETS = (1, 2, 4, 8, 16, 32)
VISIBLE_TOKENS = 512
"""The number of visible tokens is padded to this times a power of two."""

log = logging.getLogger(__name__)

GraphKey = tuple[KVWorkspace, int, int]
"""Workspace, tokens of the forward, and visible tokens."""


class GraphedDecoder:
    """Implements `Model` on a CUDA device: replays forwards of one short chunk, passes others to the decoder.

    Padding writes KV behind the chunk, which is overwritten before any token attends to it.
    """

    alignment = 1

    def __init__(self, decoder: Decoder) -> None:
        self.plain = decoder
        self._record = cuda.graph_recorder()
        self.context_tokens = decoder.context_tokens
        self.kv_shape = decoder.kv_shape
        self.device = decoder.device
        self._buffers = _Buffers(decoder)
        self._workspaces: list[KVWorkspace] = []
        self._replays: dict[GraphKey, Replay] = {}  # the recording keeps the workspace, and so its address
        self._missed: dict[GraphKey, None] = {}  # keys without a graph, in the order of their first forward
        self._has_room = True

    @property
    def weights_bytes(self) -> int:
        return self.plain.weights_bytes

    def new_workspace(self) -> KVWorkspace:
        workspace = self.plain.new_workspace()
        self._workspaces.append(workspace)
        return workspace

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        key = self._key(chunks)
        if key is not None and key not in self._replays:
            self._missed[key] = None
        if key is None or key not in self._replays:
            return self.plain.forward(chunks)
        (chunk,) = chunks
        self._buffers.fill(chunk)
        self._replays[key]()
        return [self._buffers.choices(chunk)]

    @torch.inference_mode()
    def prepare(self) -> bool:
        """Record one missing graph, first those that forwards lacked; False if none is missing."""
        key = next(self._missing(), None)
        if key is None:
            return False
        self._missed.pop(key, None)
        workspace, tokens, visible = key
        resident = workspace.export_kv(0, tokens)  # the warm-up overwrites it
        try:
            self._buffers.start_at(0)
            self._replays[key] = self._record(lambda: self._buffers.compute(workspace, tokens, visible))
        except torch.OutOfMemoryError as error:
            log.warning("no memory for more than %d CUDA graphs: %s", len(self._replays), error)
            self._has_room = False
        finally:
            workspace.import_kv(0, resident, tokens)
        return self._has_room

    def _missing(self) -> Iterator[GraphKey]:
        if not self._has_room:
            return
        yield from list(self._missed)
        for workspace in self._workspaces:
            for visible in _visible_buckets(self.context_tokens):
                for tokens in TOKEN_BUCKETS:
                    if tokens <= visible and (workspace, tokens, visible) not in self._replays:
                        yield (workspace, tokens, visible)

    def _key(self, chunks: Sequence[Chunk]) -> GraphKey | None:
        """The key of a forward's graph; None if its shape has none."""
        tokens = next((bucket for bucket in TOKEN_BUCKETS if bucket >= len(chunks[0].token_ids)), None)
        if len(chunks) > 1 or tokens is None or chunks[0].start + tokens > self.context_tokens:
            return None
        workspace = chunks[0].workspace
        assert isinstance(workspace, KVWorkspace), f"expected a KVWorkspace, not a {type(workspace).__name__}"
        stop = chunks[0].start + tokens
        return workspace, tokens, next(size for size in _visible_buckets(self.context_tokens) if size >= stop)


class _Buffers:
    """Inputs and outputs of all replays, at fixed addresses."""

    def __init__(self, decoder: Decoder) -> None:
        most = TOKEN_BUCKETS[-1]
        self._decoder = decoder
        self._token_ids = torch.zeros(most, dtype=torch.int64, device=decoder.device)
        self._start = torch.zeros(1, dtype=torch.int64, device=decoder.device)
        self._positions = torch.arange(decoder.context_tokens, device=decoder.device)
        self._logits = torch.zeros(most, decoder.architecture.vocabulary, device=decoder.device)
        self._best = torch.zeros(most, dtype=torch.int64, device=decoder.device)
        self._logprobs = torch.zeros(most, device=decoder.device)

    def fill(self, chunk: Chunk) -> None:
        """Write a chunk's tokens and position; padding keeps the tokens of earlier chunks."""
        self._token_ids[: len(chunk.token_ids)] = torch.tensor(chunk.token_ids)
        self.start_at(chunk.start)

    def start_at(self, position: int) -> None:
        """Write the position of the first token."""
        self._start.fill_(position)

    def compute(self, workspace: KVWorkspace, tokens: int, visible: int) -> None:
        """Run the forward with kernels whose shapes and addresses depend on the arguments alone."""
        positions = self._start + self._positions[:tokens]
        hidden_from = self._positions[:visible] > positions[:, None]
        mask = torch.zeros(tokens, visible, dtype=self._decoder.kv_shape.dtype, device=self._decoder.device)
        span = Span(slice(0, tokens), positions, visible, workspace, mask.masked_fill_(hidden_from, float("-inf")))
        logits = self._decoder.logits(self._decoder.hidden_of(self._token_ids[:tokens], [span]))
        best, logprobs = best_tokens(logits)
        for buffer, result in ((self._logits, logits), (self._best, best), (self._logprobs, logprobs)):
            buffer[:tokens] = result

    def choices(self, chunk: Chunk) -> tuple[Choice, ...]:
        """The next token of each of the chunk's last `wanted` tokens."""
        rows = slice(len(chunk.token_ids) - chunk.wanted, len(chunk.token_ids))
        if chunk.needs_logits:
            return choose(self._logits[rows], chunk)
        return choices(self._best[rows], self._logprobs[rows])


def _visible_buckets(context_tokens: int) -> Iterator[int]:
    bucket = VISIBLE_TOKENS
    while bucket < context_tokens:
        yield bucket
        bucket *= 2
    yield context_tokens
