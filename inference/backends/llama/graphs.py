"""Records the decoder's short forwards ahead of need as CUDA graphs over static buffers, and replays them.

At batch 1 a GPU computes a layer's matrices faster than the CPU can launch their kernels one by one; a graph is one
launch. It requires fixed shapes at fixed addresses. So tokens and visible positions are padded to buckets, with one
graph per workspace and pair of buckets. The first graphs of a workspace are recorded with it, and serve all short
forwards until the others, each for fewer positions or tokens, are recorded at rest. With `split_attention`, which reads
length and address on the device, there is one graph per bucket of tokens, for all workspaces.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from inference.backends import cuda
from inference.backends.cuda import Replay
from inference.backends.llama.decoder import AttentionSpan, Decoder, SequenceSpan
from inference.backends.model import Choice, Chunk
from inference.backends.sampling import best_tokens, choices, choose
from kv_store.workspace import KVWorkspace

if TYPE_CHECKING:
    from inference.backends.llama.split_attention import SplitSpan

TOKEN_BUCKETS = (1, 2, 4, 8, 16, 32)
FIRST_BUCKETS = (1, 4, 16)
"""Of tokens: the graphs that are recorded with a workspace, for all that can be visible."""
VISIBLE_TOKENS = 512
"""The number of visible tokens is padded to this times a power of two."""
MOST_IN_TURN = 4
"""Up to so many sequences' graphs are replayed one after the other; more are faster in one forward without graphs."""

log = logging.getLogger(__name__)

GraphKey = tuple[KVWorkspace | None, int, int]
"""Workspace (None for a graph that serves all), tokens of the forward, and visible tokens."""


class GraphedDecoder:
    """Implements `Model` on a CUDA device: replays forwards of a few short chunks, passes others to the decoder.

    Padding writes KV behind the chunk, which is overwritten before any token attends to it.
    """

    def __init__(self, decoder: Decoder, *, split_attention: bool = False) -> None:
        """`split_attention`: whether graphs use it; if Triton or the shape of the heads forbids it, they do not."""
        self.plain = decoder
        self.splits_attention = split_attention and _can_split(decoder)
        self._record = cuda.graph_recorder()
        self.context_tokens = decoder.context_tokens
        self.kv_shape = decoder.kv_shape
        self.device = decoder.device
        self.graph_bytes = 0
        """Of the GPU's memory, that the largest recording but the first has taken; the first also takes the pool."""
        self._buffers = _Buffers(decoder)
        self._workspaces: list[KVWorkspace] = []
        self._spare: list[KVWorkspace] = []  # made, and not yet given out
        self._replays: dict[GraphKey, Replay] = {}  # the recording keeps the workspace, and so its address
        self._missed: dict[GraphKey, None] = {}  # keys without a graph, in the order of their first forward
        self._records = True

    @property
    def arithmetic(self) -> str:
        """A name for all that KV depends on besides checkpoint and dtypes."""
        return f"{self.plain.arithmetic}, in graphs{' with split attention' if self.splits_attention else ''}"

    @property
    def weights_bytes(self) -> int:
        return self.plain.weights_bytes

    def new_workspace(self) -> KVWorkspace:
        """As in the interface, with its first graphs, if there is memory for them."""
        if self._spare:
            return self._spare.pop()
        workspace = self.plain.new_workspace()
        self._workspaces.append(workspace)
        for tokens in FIRST_BUCKETS:
            key = (self._shared(workspace), tokens, self.context_tokens)
            if tokens <= self.context_tokens and key not in self._replays and self._has_room():
                self._add(key)
        return workspace

    def measure_graphs(self) -> int:
        """Bytes of the GPU's memory that a graph takes; makes the first workspace, which is given out next."""
        self._spare.append(self.new_workspace())
        return self.graph_bytes

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        """As in the interface; replays in turn if every chunk has a graph, and there are few.

        Graphs compute logits, so a forward without a wanted token is the decoder's.
        """
        keys = [self._find(chunk) for chunk in chunks]
        if None in keys or len(chunks) > MOST_IN_TURN or not any(chunk.wanted for chunk in chunks):
            return self.plain.forward(chunks)
        answers = []
        for chunk, key in zip(chunks, keys, strict=True):
            assert key is not None
            assert isinstance(chunk.workspace, KVWorkspace)
            self._buffers.fill(chunk.token_ids, chunk.start, chunk.workspace)
            self._replays[key]()
            answers.append(self._buffers.choices(chunk))
        return answers

    def prepare(self) -> bool:
        """Record one missing graph, first those that forwards lacked; False if none is missing or has room."""
        key = next(self._missing(), None)
        if key is None or not self._has_room():
            return False
        self._missed.pop(key, None)
        self._add(key)
        return self._records

    def _has_room(self) -> bool:
        """Whether the GPU's reserve stays free after another recording, as far as that is known."""
        return self._records and cuda.spare_bytes(self.device) >= self.graph_bytes

    @torch.inference_mode()
    def _add(self, key: GraphKey) -> None:
        """Record a graph; after an error, most often for memory, no more are recorded."""
        owner, tokens, visible = key
        workspace = owner or self._workspaces[0]
        try:
            resident = workspace.export_kv(0, tokens)  # recording overwrites it
            try:
                self._buffers.fill([], 0, workspace)
                recording = self._record(lambda: self._buffers.compute(owner, tokens, visible))
            finally:
                workspace.import_kv(0, resident, tokens)
        except Exception as error:
            if not self._goes_on_after(error):
                raise
        else:
            if self._replays:
                self.graph_bytes = max(self.graph_bytes, recording.nbytes)
            self._replays[key] = recording.replay

    def _goes_on_after(self, error: Exception) -> bool:
        """Whether forwards can go on after a recording failed: without split attention, or without further graphs.

        Errors for memory are torch's allocator's, or the driver's, which have no type of their own.
        """
        if self.splits_attention:
            log.warning("attention is not split over keys: %s", error)
            self.splits_attention = False
            self._replays.clear()
            self._missed.clear()
        elif isinstance(error, RuntimeError):
            log.warning("no more than %d CUDA graphs are recorded: %s", len(self._replays), error)
            self._records = False
        else:
            return False
        return True

    def _missing(self) -> Iterator[GraphKey]:
        yield from list(self._missed)
        for owner in dict.fromkeys(map(self._shared, self._workspaces)):
            for visible in self._visible_buckets():
                for tokens in TOKEN_BUCKETS:
                    if tokens <= visible and (owner, tokens, visible) not in self._replays:
                        yield (owner, tokens, visible)

    def _shared(self, workspace: KVWorkspace) -> KVWorkspace | None:
        """The workspace as part of a key."""
        return None if self.splits_attention else workspace

    def _find(self, chunk: Chunk) -> GraphKey | None:
        """The smallest recorded graph that covers the chunk; None if there is none. Notes that a smaller one misses."""
        fitting = self._fitting(chunk)
        smallest = next(fitting, None)
        if smallest is None or smallest in self._replays:
            return smallest
        self._missed[smallest] = None
        return next((key for key in fitting if key in self._replays), None)

    def _fitting(self, chunk: Chunk) -> Iterator[GraphKey]:
        """The keys of all graphs that could cover a chunk, from the smallest."""
        workspace = chunk.workspace
        assert isinstance(workspace, KVWorkspace), f"expected a KVWorkspace, not a {type(workspace).__name__}"
        owner = self._shared(workspace)
        for tokens in TOKEN_BUCKETS:
            stop = chunk.start + tokens
            if tokens >= len(chunk.token_ids) and stop <= self.context_tokens:
                yield from ((owner, tokens, visible) for visible in self._visible_buckets() if visible >= stop)

    def _visible_buckets(self) -> Iterator[int]:
        bucket = VISIBLE_TOKENS
        while bucket < self.context_tokens and not self.splits_attention:
            yield bucket
            bucket *= 2
        yield self.context_tokens


class _Buffers:
    """Inputs and outputs of all replays, at fixed addresses."""

    def __init__(self, decoder: Decoder) -> None:
        most = TOKEN_BUCKETS[-1]
        self._decoder = decoder
        self._inputs = torch.zeros(2 + most, dtype=torch.int64, device=decoder.device)
        self._address, self._start, self._token_ids = self._inputs[:1], self._inputs[1:2], self._inputs[2:]
        self._positions = torch.arange(decoder.context_tokens, device=decoder.device)
        self._logits = torch.zeros(most, decoder.architecture.vocabulary, device=decoder.device)
        self._best = torch.zeros(most, dtype=torch.int64, device=decoder.device)
        self._logprobs = torch.zeros(most, device=decoder.device)

    def fill(self, token_ids: Sequence[int], start: int, workspace: KVWorkspace) -> None:
        """Write a chunk's workspace, position and tokens, in one copy; padding keeps the tokens of earlier chunks."""
        inputs = [workspace.buffer.data_ptr(), start, *token_ids]
        self._inputs[: len(inputs)] = torch.tensor(inputs)

    def compute(self, workspace: KVWorkspace | None, tokens: int, visible: int) -> None:
        """Run the forward with kernels whose shapes and addresses depend on the arguments alone.

        Without a workspace, the kernels find that of the last `fill`.
        """
        positions = self._start + self._positions[:tokens]
        span = self._split(positions) if workspace is None else self._masked(workspace, positions, visible)
        logits = self._decoder.logits(self._decoder.hidden_of(self._token_ids[:tokens], [span]))
        best, logprobs = best_tokens(logits)
        for buffer, result in ((self._logits, logits), (self._best, best), (self._logprobs, logprobs)):
            buffer[:tokens] = result

    def _masked(self, workspace: KVWorkspace, positions: Tensor, visible: int) -> SequenceSpan:
        architecture, tokens = self._decoder.architecture, len(positions)
        hidden_from = self._positions[:visible] > positions[:, None]
        mask = torch.zeros(tokens, visible, dtype=self._decoder.kv_shape.dtype, device=self._decoder.device)
        mask = mask.masked_fill_(hidden_from, float("-inf")).repeat(architecture.heads // architecture.kv_heads, 1)
        return AttentionSpan(slice(0, tokens), positions, visible, workspace, mask if tokens > 1 else mask[:1])

    def _split(self, positions: Tensor) -> SplitSpan:
        from inference.backends.llama.split_attention import SplitSpan

        rows, longest = slice(0, len(positions)), self._decoder.context_tokens
        return SplitSpan(rows, positions, self._start, self._address, longest)

    def choices(self, chunk: Chunk) -> tuple[Choice, ...]:
        """The next token of each of the chunk's last `wanted` tokens."""
        rows = slice(len(chunk.token_ids) - chunk.wanted, len(chunk.token_ids))
        if chunk.needs_logits:
            return choose(self._logits[rows], chunk)
        return choices(self._best[rows], self._logprobs[rows])


def _can_split(decoder: Decoder) -> bool:
    """Whether `split_attention` can be imported here, and computes the decoder's heads."""
    try:
        from inference.backends.llama.split_attention import is_supported
    except ImportError as error:
        log.warning("attention is not split over keys: %s", error)
        return False
    return is_supported(decoder.architecture, decoder.kv_shape.dtype)
