"""Records the decoder's short forwards ahead of need as CUDA graphs over static buffers, and replays them.

At batch 1 a GPU computes a layer's matrices faster than the CPU can launch their kernels one by one; a graph is one
launch. It requires fixed shapes at fixed addresses. So tokens and visible positions are padded to buckets, with one
graph per workspace and pair of buckets. The first graphs of a workspace are recorded with it, and serve all short
forwards until the others, each for fewer positions or tokens, are recorded at rest. With `split_attention`, which reads
length and address on the device, there is one graph per bucket of tokens, for all workspaces; and one for several
sequences at a time, which reads the weights once for all of them, recorded at rest after it was missed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import torch

from inference.backends import cuda
from inference.backends.cuda import Replay
from inference.backends.llama.decoder import AttentionSpan, Decoder
from inference.backends.model import Choice, Chunk
from inference.backends.sampling import best_tokens, choices, choose
from kv_store.workspace import KVWorkspace, torch_dtype

TOKEN_BUCKETS = (1, 2, 4, 8, 16, 32)
FIRST_BUCKETS = (1, 4, 16)
"""Of tokens: the graphs that are recorded with a workspace, for all that can be visible."""
VISIBLE_TOKENS = 512
"""The number of visible tokens is padded to this times a power of two."""
MOST_IN_TURN = 4
"""Up to so many sequences are replayed one after the other; more are faster in a forward without."""
MOST_TOGETHER = 8
"""Up to so many, with split attention, in one graph, or in turn until that is recorded."""

log = logging.getLogger(__name__)

GraphKey = tuple[KVWorkspace | None, int, int, int]
"""Workspace (None for a graph that serves all), sequences, tokens of each, and visible tokens."""


class GraphedDecoder:
    """Implements `Model` on a CUDA device: replays forwards of a few short chunks, passes others to the decoder.

    Padding writes KV behind the chunk, which is overwritten before any token attends to it.
    """

    def __init__(self, decoder: Decoder, *, split_attention: bool = True) -> None:
        """`split_attention`: whether graphs use it, where Triton is installed and computes such heads."""
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
            key = (self._shared(workspace), 1, tokens, self.context_tokens)
            if tokens <= self.context_tokens and key not in self._replays and self._has_room():
                self._add(key)
        return workspace

    def measure_graphs(self) -> int:
        """Bytes of the GPU's memory that a graph takes; makes the first workspace, which is given out next."""
        self._spare.append(self.new_workspace())
        return self.graph_bytes

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        """As in the interface; replays if every chunk has a graph, and there are few."""
        runs = self._runs(chunks)
        if not runs:
            return self.plain.forward(chunks)
        answers = []
        for key, run in runs:
            self._buffers.fill(run, key[2])
            self._replays[key]()
            answers += [self._buffers.choices(chunk, place * key[2]) for place, chunk in enumerate(run)]
        if not any(answers):  # nothing has waited for the device
            cuda.wait(self.device)
        return answers

    def _runs(self, chunks: Sequence[Chunk]) -> list[tuple[GraphKey, Sequence[Chunk]]]:
        """The replay of all chunks, or else one of each in turn; none if there are too many chunks, or too few graphs."""
        if len(chunks) > (MOST_TOGETHER if self.splits_attention else MOST_IN_TURN):
            return []
        if self.splits_attention and (together := self._find(chunks)):
            return [(together, chunks)]
        runs = list[tuple[GraphKey, Sequence[Chunk]]]()
        for chunk in chunks:
            key = self._find([chunk])
            if key is None:
                return []
            runs.append((key, [chunk]))
        return runs

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
        owner, sequences, tokens, visible = key
        workspace = owner or self._workspaces[0]
        try:
            resident = workspace.export_kv(0, tokens)  # recording overwrites it
            try:
                self._buffers.fill([Chunk([0] * tokens, 0, workspace)] * sequences, tokens)
                recording = self._record(lambda: self._buffers.compute(owner, sequences, tokens, visible))
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
                    if tokens <= visible and (owner, 1, tokens, visible) not in self._replays:
                        yield (owner, 1, tokens, visible)

    def _shared(self, workspace: KVWorkspace) -> KVWorkspace | None:
        """The workspace as part of a key."""
        return None if self.splits_attention else workspace

    def _find(self, chunks: Sequence[Chunk]) -> GraphKey | None:
        """The smallest recorded graph that covers the chunks; None if there is none. Notes that a smaller one misses."""
        fitting = self._fitting(chunks)
        smallest = next(fitting, None)
        if smallest is None or smallest in self._replays:
            return smallest
        self._missed[smallest] = None
        return next((key for key in fitting if key in self._replays), None)

    def _fitting(self, chunks: Sequence[Chunk]) -> Iterator[GraphKey]:
        """The keys of all graphs that could cover the chunks, from the smallest."""
        workspace, count = chunks[0].workspace, len(chunks)
        assert isinstance(workspace, KVWorkspace), f"expected a KVWorkspace, not a {type(workspace).__name__}"
        owner, longest = self._shared(workspace), max(len(chunk.token_ids) for chunk in chunks)
        for tokens in TOKEN_BUCKETS:
            stop = max(chunk.start for chunk in chunks) + tokens
            if tokens >= longest and stop <= self.context_tokens and count * tokens <= TOKEN_BUCKETS[-1]:
                yield from ((owner, count, tokens, visible) for visible in self._visible_buckets() if visible >= stop)

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
        self._inputs = torch.zeros(2 * MOST_TOGETHER + most, dtype=torch.int64, device=decoder.device)
        self._addresses, self._starts, self._token_ids = torch.split(self._inputs, [MOST_TOGETHER, MOST_TOGETHER, most])
        self._positions = torch.arange(decoder.context_tokens, device=decoder.device)
        self._logits = torch.zeros(most, decoder.architecture.vocabulary, device=decoder.device)
        self._best = torch.zeros(most, dtype=torch.int64, device=decoder.device)
        self._logprobs = torch.zeros(most, device=decoder.device)

    def fill(self, chunks: Sequence[Chunk], tokens: int) -> None:
        """Write the chunks' workspaces, positions and tokens, padded to `tokens` each, in one copy."""
        unused = [0] * (MOST_TOGETHER - len(chunks))
        inputs = [*(chunk.workspace.buffer.data_ptr() for chunk in chunks if isinstance(chunk.workspace, KVWorkspace)), *unused]
        inputs += [*(chunk.start for chunk in chunks), *unused]
        for chunk in chunks:
            inputs += [*chunk.token_ids, *[0] * (tokens - len(chunk.token_ids))]
        self._inputs[: len(inputs)] = torch.tensor(inputs)

    def compute(self, workspace: KVWorkspace | None, sequences: int, tokens: int, visible: int) -> None:
        """Run the forward with kernels whose shapes and addresses depend on the arguments alone.

        Without a workspace, the kernels find those of the last `fill`.
        """
        count = sequences * tokens
        token_ids = self._token_ids[:count]
        if workspace is None:
            from inference.backends.llama.fused import hidden_of
            from inference.backends.llama.split_attention import Places

            hidden = hidden_of(self._decoder, token_ids, Places(self._addresses, self._starts, sequences, tokens, visible))
        else:
            hidden = self._decoder.hidden_of(token_ids, [self._masked(workspace, tokens, visible)])
        logits = self._decoder.logits(hidden)
        best, logprobs = best_tokens(logits)
        for buffer, result in ((self._logits, logits), (self._best, best), (self._logprobs, logprobs)):
            buffer[:count] = result

    def _masked(self, workspace: KVWorkspace, tokens: int, visible: int) -> AttentionSpan:
        architecture = self._decoder.architecture
        positions = self._starts[0] + self._positions[:tokens]
        hidden_from = self._positions[:visible] > positions[:, None]
        mask = torch.zeros(tokens, visible, dtype=torch_dtype(self._decoder.kv_shape), device=self._decoder.device)
        mask = mask.masked_fill_(hidden_from, float("-inf")).repeat(architecture.heads // architecture.kv_heads, 1)
        return AttentionSpan(slice(tokens), positions, visible, workspace, mask if tokens > 1 else mask[:1])

    def choices(self, chunk: Chunk, first: int) -> tuple[Choice, ...]:
        """The next token of each of the last `wanted` tokens of a chunk that begins at row `first`."""
        if not chunk.wanted:
            return ()
        stop = first + len(chunk.token_ids)
        rows = slice(stop - chunk.wanted, stop)
        if chunk.needs_logits:
            return choose(self._logits[rows], chunk)
        return choices(self._best[rows], self._logprobs[rows])


def _can_split(decoder: Decoder) -> bool:
    """Whether Triton is installed, and its kernels compute the decoder's heads."""
    try:
        from inference.backends.llama.fused import is_supported
    except ImportError as error:
        log.info("attention is not split over keys: %s", error)
        return False
    return is_supported(decoder.architecture, torch_dtype(decoder.kv_shape))
