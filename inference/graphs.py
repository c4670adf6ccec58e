"""A decoder whose short forwards are recorded once, as CUDA graphs over static buffers, and then replayed.

At batch 1 a GPU is done with a layer's matrices sooner than their kernels can be launched one by one; a graph is
launched as a whole. It wants fixed shapes at fixed addresses. So tokens, and what they may look at, are padded to
buckets, and there is one recording for every workspace and pair of buckets that is met.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from inference.chunk import Chunk
from inference.decoder import Decoder, Span
from inference.healing_choice import best_tokens, choices, greedy_choices
from inference.model import Choice
from kv_store.workspace import KVWorkspace

TOKEN_BUCKETS = (1, 2, 4, 8, 16, 32)
VISIBLE_TOKENS = 512
"""What is visible is padded to a power of two times so many tokens."""

Replay = Callable[[], object]
Recorder = Callable[[Callable[[], None]], Replay]
"""Makes of a computation over static buffers something that repeats it when called."""


class GraphedDecoder:
    """Implements `Model`: a forward of one short chunk is replayed, any other is the decoder's own.

    Padding writes KV behind the chunk, which is overwritten before any token may look at it.
    """

    alignment = 1

    def __init__(self, decoder: Decoder, record: Recorder) -> None:
        self._decoder = decoder
        self._record = record
        self.context_tokens = decoder.context_tokens
        self.kv_shape = decoder.kv_shape
        self.device = decoder.device
        self._buffers = _Buffers(decoder)
        self._replays: dict[tuple[KVWorkspace, int, int], Replay] = {}

    def new_workspace(self) -> KVWorkspace:
        return self._decoder.new_workspace()

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        tokens = _token_bucket(chunks[0])
        if len(chunks) > 1 or tokens is None or chunks[0].start + tokens > self.context_tokens:
            return self._decoder.forward(chunks)
        (chunk,) = chunks
        assert isinstance(chunk.workspace, KVWorkspace), f"a workspace of type {type(chunk.workspace).__name__}"
        visible = min(_visible_bucket(chunk.start + tokens), self.context_tokens)
        self._buffers.fill(chunk)
        self._replay(chunk.workspace, tokens, visible)()
        return [self._buffers.choices(chunk)]

    def _replay(self, workspace: KVWorkspace, tokens: int, visible: int) -> Replay:
        key = (workspace, tokens, visible)
        if key not in self._replays:
            # What is recorded holds the workspace, so that its address is never another's.
            self._replays[key] = self._record(lambda: self._buffers.compute(workspace, tokens, visible))
        return self._replays[key]


class _Buffers:
    """What goes into a replay and comes out of it, at the same addresses for all of them."""

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
        """Put a chunk's tokens and its place in; what padding is there is left from chunks before."""
        self._token_ids[: len(chunk.token_ids)] = torch.tensor(chunk.token_ids)
        self._start.fill_(chunk.start)

    def compute(self, workspace: KVWorkspace, tokens: int, visible: int) -> None:
        """The forward, by kernels whose shapes and addresses depend on the arguments alone."""
        positions = self._start + self._positions[:tokens]
        hidden_from = self._positions[:visible] > positions[:, None]
        mask = torch.zeros(tokens, visible, dtype=self._decoder.kv_shape.dtype, device=self._decoder.device)
        span = Span(slice(0, tokens), positions, visible, workspace, mask.masked_fill_(hidden_from, float("-inf")))
        logits = self._decoder.logits(self._decoder.hidden_of(self._token_ids[:tokens], [span]))
        best, logprobs = best_tokens(logits)
        for buffer, result in ((self._logits, logits), (self._best, best), (self._logprobs, logprobs)):
            buffer[:tokens] = result

    def choices(self, chunk: Chunk) -> tuple[Choice, ...]:
        """What follows the chunk's last `wanted` tokens."""
        rows = slice(len(chunk.token_ids) - chunk.wanted, len(chunk.token_ids))
        if chunk.allowed is not None:
            return greedy_choices(self._logits[rows], chunk.allowed)
        return choices(self._best[rows], self._logprobs[rows])


def cuda_graph_recorder() -> Recorder:
    """Captures computations as CUDA graphs, after the run on another stream that PyTorch asks for before a capture.

    The graphs share their memory, which with int8 weights has to hold a whole matrix widened: they are replayed one at
    a time, and nothing is kept in it from one replay to the next.
    """
    pool, stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def record(compute: Callable[[], None]) -> Replay:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            compute()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            compute()
        return graph.replay

    return record


def _token_bucket(chunk: Chunk) -> int | None:
    return next((bucket for bucket in TOKEN_BUCKETS if bucket >= len(chunk.token_ids)), None)


def _visible_bucket(stop: int) -> int:
    bucket = VISIBLE_TOKENS
    while bucket < stop:
        bucket *= 2
    return bucket
