"""Plans the memory of a loaded model from what is free: weights, forwards, workspaces, graphs and the store.

Imports no torch. Sizes are in bytes; all but those of weights and KV are estimates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from inference.checkpoints.architecture import Architecture, ModelShape
from inference.checkpoints.weights import WeightsFile
from protocol.errors import BadInput
from protocol.settings import Weights

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
FEWEST_SLOTS, MOST_SLOTS = 2, 8  # by default; with one, a keystroke would wait for the whole of somebody's suggestion
GPU_RESERVE = 384 * 2**20  # for libraries' own workspaces, loaded kernels, and what allocators round up
GRAPHS_PER_WORKSPACE = 24 * 2**20  # a few dozen recordings of some hundred kernels each
LARGEST_LOGITS = 32  # tokens whose logits a short forward has at once
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """What is to be loaded, and what the settings ask for.

    Attributes:
        dtype: what the model computes in; its weights and KV have it in memory, whatever the checkpoint's files have.
        weights: how matrices are rounded.
        slots: workspaces; None for as many as suit.
        on_gpu: whether graphs are recorded, and libraries take memory of the device.
    """

    shape: ModelShape
    files: Sequence[WeightsFile]
    dtype: str
    weights: Weights
    context_tokens: int
    slots: int | None
    store_bytes: int
    prefill_chunk: int
    on_gpu: bool


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Who gets how much of what is free; it adds up to no more than that where `fits`."""

    free: int
    weights: int
    forwards: int  # activations of the largest forward, and the reserve
    workspace: int  # each
    graphs: int  # of each workspace
    slots: int  # workspaces
    store: int  # at most

    @property
    def least(self) -> int:
        """What the model needs to run at all: with one workspace, and nothing resident beside it."""
        return self.weights + self.forwards + self.workspace + self.graphs

    @property
    def fits(self) -> bool:
        return self.least <= self.free


def plan_memory(demand: MemoryDemand, free: int) -> MemoryPlan:
    """The plan for `free` bytes; BadInput for a number of slots that cannot be.

    Workspaces come before the store: by default as many as take half of what the store may, and fewer where there is
    no room for them. What is left is the store's, up to what the settings ask for.
    """
    if demand.slots is not None and demand.slots < 1:
        raise BadInput(f"{demand.slots} slots: it has to be 1 or more")
    workspace = demand.shape.kv_values_per_token * demand.context_tokens * DTYPE_BYTES[demand.dtype]
    graphs = GRAPHS_PER_WORKSPACE if demand.on_gpu else 0
    weights, forwards = weights_bytes(demand), _forward_bytes(demand)
    left = max(0, free - weights - forwards)
    slots = demand.slots
    if slots is None:
        wanted = max(FEWEST_SLOTS, min(MOST_SLOTS, demand.store_bytes // 2 // workspace))
        slots = max(1, min(wanted, left // (workspace + graphs)))
    store = max(0, min(demand.store_bytes, left - slots * (workspace + graphs)))
    return MemoryPlan(free, weights, forwards, workspace, graphs, slots, store)


def weights_bytes(demand: MemoryDemand) -> int:
    """What the weights take in memory: int8 and fp8 round matrices to a byte a value, with a scale for each row."""
    size = DTYPE_BYTES[demand.dtype]
    tied = isinstance(demand.shape, Architecture) and demand.shape.tied_embeddings
    total = 0
    for name, shape in _shapes(demand.files):
        values = math.prod(shape)
        if name == HEAD and tied:
            continue  # the embedding's matrix is used
        total += _rounded(shape) if demand.weights != "auto" and _is_rounded(name, shape) else values * size
        if name == EMBEDDING and tied and demand.weights == "fp8":
            total += _rounded(shape)  # the head is a copy of its own
    return total


def _forward_bytes(demand: MemoryDemand) -> int:
    """Of the largest forward: a prefill chunk's activations and mask, the logits of a short one, a widened matrix."""
    size, shape = DTYPE_BYTES[demand.dtype], demand.shape
    total = GPU_RESERVE if demand.on_gpu else 0
    if not isinstance(shape, Architecture):
        return total
    projected = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    a_token = 6 * shape.hidden + 2 * projected + 4 * shape.intermediate + demand.context_tokens
    total += demand.prefill_chunk * a_token * size + 3 * LARGEST_LOGITS * shape.vocabulary * 4
    if demand.on_gpu and demand.weights == "int8":
        total += size * max(math.prod(matrix) for _, matrix in _shapes(demand.files))
    return total


def _shapes(files: Sequence[WeightsFile]) -> list[tuple[str, list[int]]]:
    """The name and the shape of every tensor."""
    entries = [entry for file in files for entry in json.loads(file.header).items()]
    return [(name, entry["shape"]) for name, entry in entries if name != "__metadata__"]


def _is_rounded(name: str, shape: Sequence[int]) -> bool:
    return len(shape) == 2 and name != EMBEDDING


def _rounded(shape: Sequence[int]) -> int:
    return math.prod(shape) + 4 * shape[0]
