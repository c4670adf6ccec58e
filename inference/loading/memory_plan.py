"""Divides free memory between a model's weights, forwards, workspaces, graphs and store.

Imports no torch. Sizes are in bytes; all but those of weights and KV are estimates.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from inference.checkpoints.architecture import Architecture, ModelShape
from inference.checkpoints.weights import QuantizedType, StoredTensor, WeightsFile, common_type
from kv_store.snapshots import FEWEST_SNAPSHOTS, budget_of_a_slot
from protocol.errors import BadInput
from protocol.settings import Weights

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
FEWEST_SLOTS, MOST_SLOTS = 2, 8  # by default; with one, a keystroke would wait for another client's whole completion
MOST_STORE = 2 * 2**30  # by default
LEAST_STORE = 128 * 2**20  # by default: the prompts of a few documents, with models of hundreds of millions of weights
STORE_SHARE = 200  # by default the store gets so small a part of main memory; the disk has what it evicts
GPU_RESERVE = 384 * 2**20  # libraries' workspaces, loaded kernels, and allocators' rounding
GPU_UNPLANNED = 0.05  # of free memory, for what loading fragments, and for graphs that are recorded at rest
GRAPHS_WITH_A_WORKSPACE = 3  # inference/backends/llama/graphs.py records the others only if memory is left
KERNELS_OF_A_LAYER, OTHER_KERNELS = 24, 18  # in a graph
KERNEL_BYTES = 12 * 2**10  # that the driver takes for each in a graph, until a graph has been measured
MOST_PREFILL_CHUNK = 2048
PREFILL_SHARE = 1 / 32  # of free memory, at most, for the activations of a chunk that is larger than asked for
# Per value, with the group's share of its scale and minimum.
KERNEL_BITS: Mapping[str, float] = {"int8": 8.5, "int6": 7, "int5": 6, "int4": 5, "centred_int4": 4.5}
HALVES = ("F16", "BF16")  # that the kernel keeps as they are stored, whatever the dtype
LARGEST_LOGITS = 32  # tokens whose logits a short forward holds at once
_FUSED = re.compile(r"(?<=mlp\.)(gate|up)_proj(?=\.weight)")
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """The model to load, and the settings that determine its memory.

    Attributes:
        dtype: of computation, and of weights and KV in memory, independent of the dtype in the checkpoint's files.
        weights: how matrices are quantized.
        slots: number of workspaces; 0 chooses it.
        on_gpu: whether graphs are recorded, and libraries use device memory.
        on_kernel: whether the CPU kernel computes, which keeps GGUF files quantized.
        graph_bytes: of a graph, if one has been measured.
        snapshot_bytes: of the states of recurrent layers after some tokens; 0 without any, and as long
            as those of unknown kinds are not measured.
    """

    shape: ModelShape
    files: Sequence[WeightsFile]
    dtype: str
    weights: Weights
    context_tokens: int
    slots: int
    store_bytes: int
    prefill_chunk: int
    on_gpu: bool
    on_kernel: bool
    graph_bytes: int | None = None
    snapshot_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes per purpose; if it `fits`, their sum is at most the usable part of the free memory."""

    free: int
    usable: int
    weights: int
    forwards: int  # activations of the largest forward, and the reserve
    workspace: int  # each
    graphs: int  # that are recorded with each workspace
    slots: int  # workspaces
    kept: int  # of them, those that documents keep; further ones exist only for requests at work at the same time
    store: int  # at most
    prefill_chunk: int  # most tokens of a forward
    snapshots: int = 0  # of the store's, those for states of recurrent layers

    @property
    def in_use(self) -> int:
        """Most bytes while one request at a time is at work, as of one user."""
        return self.weights + self.forwards + self.kept * (self.workspace + self.graphs) + self.store

    @property
    def least(self) -> int:
        """Least bytes that the model needs to run: with one workspace and an empty store."""
        return self.weights + self.forwards + self.workspace + self.graphs

    @property
    def fits(self) -> bool:
        return self.least <= self.usable


def default_store_bytes(memory: int, *, on_gpu: bool) -> int:
    """The store's budget if no setting says it, for main memory of this size: it leaves a laptop to other programs."""
    return MOST_STORE if on_gpu else min(MOST_STORE, max(LEAST_STORE, memory // STORE_SHARE))


def plan_memory(demand: MemoryDemand, free: int) -> MemoryPlan:
    """The plan for `free` bytes; BadInput for an invalid number of slots.

    Workspaces come before the store: by default as many as take half of the store's budget, at least FEWEST_SLOTS, or
    fewer if there is no room. The store gets the rest, up to the budget in the settings. Documents keep the workspaces
    that a setting or half of the store's budget pays for, on a GPU, where each has its graphs, all. Pages and snapshots
    share the store as they share a prompt that fills the context.
    """
    if demand.slots < 0:
        raise BadInput(f"slots must be 0 or more, not {demand.slots}")
    kv = demand.shape.kv_values_per_token * demand.context_tokens * DTYPE_BYTES[demand.dtype]
    workspace = kv + budget_of_a_slot(demand.snapshot_bytes)
    graphs, chunk = _graphs_bytes(demand), _prefill_chunk(demand, free)
    usable = int(free * (1 - GPU_UNPLANNED)) if demand.on_gpu else free
    weights, forwards = weights_bytes(demand), _forward_bytes(demand, chunk)
    left = max(0, usable - weights - forwards)
    slots = kept = demand.slots
    if not slots:
        paid_for = demand.store_bytes // 2 // workspace
        slots = max(1, min(max(FEWEST_SLOTS, min(MOST_SLOTS, paid_for)), left // (workspace + graphs)))
        kept = slots if demand.on_gpu else max(1, min(slots, paid_for))
    store = max(0, min(demand.store_bytes, left - slots * (workspace + graphs)))
    of_a_prompt = FEWEST_SNAPSHOTS * demand.snapshot_bytes
    snapshots = store * of_a_prompt // (of_a_prompt + kv)
    return MemoryPlan(free, usable, weights, forwards, workspace, graphs, slots, kept, store, chunk, snapshots)


def weights_bytes(demand: MemoryDemand) -> int:
    """Bytes of the weights in memory.

    On a GPU, int8 and fp8 take one byte per value, and one scale per row; int4 takes what it takes in the kernel, but
    leaves the head. The CPU kernel quantizes every matrix, and adds a float16 scale, for int4 also a minimum, per group of
    columns; embedding and head have 8 bits at least. Of a GGUF file it keeps the types unless a setting says otherwise, and
    of any file matrices of 16 bits; the other backends widen them to the dtype.
    """
    if demand.weights in KERNEL_BITS and not demand.on_gpu:
        return _kernel_bytes(demand)
    fused = _fused_types(demand.files) if demand.on_kernel and demand.weights == "auto" else {}
    size = DTYPE_BYTES[demand.dtype]
    tied = isinstance(demand.shape, Architecture) and demand.shape.tied_embeddings
    total = 0
    for name, tensor in _tensors(demand.files):
        shape, values = tensor.shape, tensor.values
        if name == HEAD and tied:
            continue  # tied: the head is the embedding's matrix
        quantized_type = common_type(fused.get(_fused_name(name), {None}))
        if quantized_type is not None:
            total += int(values * KERNEL_BITS[quantized_type] / 8)
            continue
        if demand.on_kernel and tensor.type_name in HALVES and len(shape) == 2:
            total += values * 2
        else:
            total += _rounded(shape, demand.weights) if _is_quantized(name, shape, demand.weights) else values * size
        if name == EMBEDDING and tied and demand.weights == "fp8":
            total += _rounded(shape, demand.weights)  # the head is a separate copy
    return total


def _fused_types(files: Sequence[WeightsFile]) -> Mapping[str, set[QuantizedType | None]]:
    """The kernel's types of the matrices that are packed as one: it has int8 if they differ."""
    types: dict[str, set[QuantizedType | None]] = defaultdict(set)
    for name, tensor in _tensors(files):
        types[_fused_name(name)].add(tensor.kernel_type)
    return types


def _fused_name(name: str) -> str:
    """One name for gate and up of a layer."""
    return _FUSED.sub("fused", name)


def _kernel_bytes(demand: MemoryDemand) -> int:
    tied = isinstance(demand.shape, Architecture) and demand.shape.tied_embeddings
    total = 0.0
    for name, tensor in _tensors(demand.files):
        if name == HEAD and tied:
            continue
        outer = name in (HEAD, EMBEDDING)
        bits = 32 if len(tensor.shape) < 2 else KERNEL_BITS["int8" if outer else demand.weights]
        total += tensor.values * bits / 8
    return int(total)


def _graphs_bytes(demand: MemoryDemand) -> int:
    """Bytes of the graphs that are recorded with a workspace; only our decoder's forwards have some."""
    if not demand.on_gpu or not isinstance(demand.shape, Architecture) or demand.shape.kernel_alone:
        return 0
    kernels = KERNELS_OF_A_LAYER * demand.shape.layers + OTHER_KERNELS
    each = kernels * KERNEL_BYTES if demand.graph_bytes is None else demand.graph_bytes
    return GRAPHS_WITH_A_WORKSPACE * each


def _prefill_chunk(demand: MemoryDemand, free: int) -> int:
    """Most prompt tokens of a forward: on a GPU the asked number, doubled while a chunk takes little memory."""
    chunk = demand.prefill_chunk
    if not demand.on_gpu or not isinstance(demand.shape, Architecture) or demand.shape.kernel_alone:
        return chunk
    most = min(MOST_PREFILL_CHUNK, demand.context_tokens)
    while 2 * chunk <= most and _chunk_bytes(demand, demand.shape, 2 * chunk) <= free * PREFILL_SHARE:
        chunk *= 2
    return chunk


def _chunk_bytes(demand: MemoryDemand, shape: Architecture, tokens: int) -> int:
    """Bytes of the activations of a chunk, and of its attention's mask, which GPUs do without."""
    projected = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    a_token = 6 * shape.hidden + 2 * projected + 4 * shape.intermediate + (0 if demand.on_gpu else demand.context_tokens)
    return tokens * a_token * DTYPE_BYTES[demand.dtype]


def _forward_bytes(demand: MemoryDemand, chunk: int) -> int:
    """Bytes of the largest forward: a prefill chunk's activations, short chunks' logits, a widened matrix."""
    size, shape = DTYPE_BYTES[demand.dtype], demand.shape
    total = GPU_RESERVE if demand.on_gpu else 0
    if not isinstance(shape, Architecture):
        return total
    total += _chunk_bytes(demand, shape, chunk) + 3 * LARGEST_LOGITS * shape.vocabulary * 4
    if demand.on_gpu and demand.weights == "int8":
        total += size * max(tensor.values for _, tensor in _tensors(demand.files))
    return total


def _tensors(files: Sequence[WeightsFile]) -> Iterator[tuple[str, StoredTensor]]:
    return chain.from_iterable(file.tensors.items() for file in files)


def _is_quantized(name: str, shape: Sequence[int], weights: Weights) -> bool:
    if len(shape) != 2 or name == EMBEDDING or weights == "auto":
        return False
    return weights != "int4" or (name != HEAD and shape[0] % 8 == shape[1] % 32 == 0)


def _rounded(shape: Sequence[int], weights: Weights) -> int:
    values = math.prod(shape)
    return int(values * KERNEL_BITS[weights] / 8) if weights == "int4" else values + 4 * shape[0]
