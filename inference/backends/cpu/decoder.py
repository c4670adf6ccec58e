"""The decoder on the CPU kernel: packs a model's weights, checks forwards and runs them on the engine's workspaces."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from inference.backends.cpu.library import (
    LEVELS,
    NUMBER_TYPES,
    CChoice,
    CLayerWeights,
    CMatrix,
    CModel,
    CSequence,
    KernelUnavailable,
    Level,
    choose_level,
    load_library,
    unsupported_reason,
)
from inference.backends.cpu.packing import (
    BLOCK,
    UNIT,
    PackedMatrix,
    WeightType,
    in_numpy,
    pack_gate_up,
    pack_matrix,
    pad_vector,
    padded,
    vocabulary_type,
)
from inference.backends.cpu.stored import Matrix, StoredMatrix
from inference.backends.drawing import choose_in_memory
from inference.backends.layer_weights import LayerWeights, WeightsSource
from inference.backends.model import Choice, Chunk
from inference.checkpoints.architecture import Architecture, DeltaRule, LayerKind
from inference.checkpoints.quantized_matrix import QuantizedMatrix
from kv_store.interface import Workspace
from protocol.garbage import return_free_memory

if TYPE_CHECKING:
    from inference.backends.cpu.recurrent_workspace import RecurrentWorkspace
    from kv_store.main_memory import ArrayWorkspace
    from kv_store.workspace import KVWorkspace

MAX_NEW_TOKENS = 32
"""Most new tokens in one call, as in model.h."""

PACKERS = 2
"""Threads that pack the layers of a file: the kernel's library does most of it, and Python's lock is free meanwhile."""

KV_DTYPES: Sequence[str] = ("float32", "bfloat16")  # by their numbers in model.h


def check_call(architecture: Architecture, positions: int, chunks: Sequence[Chunk]) -> None:
    """Raise ValueError, with the value at fault, if a forward would exceed any buffer."""
    count = sum(len(chunk.token_ids) for chunk in chunks)
    if not 1 <= count <= MAX_NEW_TOKENS:
        raise ValueError(f"a call takes 1 to {MAX_NEW_TOKENS} new tokens, not {count}")
    if len({id(chunk.workspace) for chunk in chunks}) < len(chunks):
        raise ValueError("a call takes one chunk per workspace")
    for chunk in chunks:
        _check_chunk(architecture, positions, chunk)


def _check_chunk(architecture: Architecture, positions: int, chunk: Chunk) -> None:
    token_ids, count = chunk.token_ids, len(chunk.token_ids)
    if count == 0:
        raise ValueError("a chunk needs at least one new token")
    if min(token_ids) < 0 or max(token_ids) >= architecture.vocabulary:
        raise ValueError(f"token ids {min(token_ids)} to {max(token_ids)} exceed the vocabulary of {architecture.vocabulary}")
    if not 0 <= chunk.wanted <= count:
        raise ValueError(f"a chunk of {count} tokens cannot give {chunk.wanted} logits")
    workspace = _in_main_memory(chunk.workspace)
    room = min(workspace.max_tokens, positions)
    if not 0 <= chunk.start <= room - count:
        raise ValueError(f"tokens [{chunk.start}, {chunk.start + count}) exceed a workspace of {room}")
    shape = workspace.shape
    expected = (architecture.kv_layers or architecture.layers, architecture.kv_heads, architecture.head_dim)
    if (shape.num_layers, shape.num_kv_heads, shape.head_dim) != expected:
        raise ValueError(f"the workspace has shape {shape}: expected layers, key-value heads and head dimension {expected}")
    if shape.dtype not in KV_DTYPES:
        raise ValueError(f"the workspace has {shape.dtype}: expected float32 or bfloat16")
    if architecture.layer_kinds and workspace.snapshots is None:
        raise TypeError("recurrent layers need a RecurrentWorkspace")


def _in_main_memory(workspace: Workspace) -> ArrayWorkspace | KVWorkspace:
    if getattr(workspace, "address", None) is None:
        raise TypeError(f"the kernel needs a workspace in main memory, not a {type(workspace).__name__}")
    return cast("ArrayWorkspace | KVWorkspace", workspace)


KIND_NUMBERS: Mapping[LayerKind, int] = {"attention": 0, "convolution": 1, "delta": 2}  # LayerKind of model.h


class KernelDecoder:
    """Forwards of up to MAX_NEW_TOKENS tokens of one or more sequences; one call at a time, from any thread.

    Raises KernelUnavailable if the library is missing, this CPU lacks the level, or the kernel does not support the
    shape.
    """

    def __init__(
        self,
        architecture: Architecture,
        weights: WeightsSource[Matrix],
        tables: tuple[Any, Any],
        weight_type: WeightType,
        threads: int,
        level: Level | None = None,
    ) -> None:
        """tables: cosines and sines [positions, turned / 2], or more columns, of `rotations`."""
        reason = unsupported_reason(architecture)
        if reason is not None:
            raise KernelUnavailable(f"the CPU kernel does not support {reason}")
        if threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self.architecture = architecture
        self.level = choose_level(level)
        self._library = load_library()
        self._kept: list[object] = []  # buffers that the kernel points to
        self._positions = tables[0].shape[0]
        self._handle = self._create(self._model(weights, tables, weight_type), threads)
        self._one_call_at_a_time = threading.Lock()
        finalizer = weakref.finalize(self, self._library.midfill_kernel_destroy, self._handle)
        finalizer.atexit = False  # another thread may be within a call, and the process's memory goes anyway

    @property
    def weights_bytes(self) -> int:
        return sum(kept.nbytes for kept in self._kept if isinstance(kept, np.ndarray))

    def forward(self, chunks: Sequence[Chunk]) -> list[NDArray[np.float32]]:
        """Logits [wanted, vocabulary] in float32 of the last `wanted` tokens of each chunk.

        Writes the chunks' KV. Bitwise equal to separate calls. Raises ValueError if a chunk is out of bounds.
        """
        wanted = [chunk.wanted for chunk in chunks]
        logits = np.empty((sum(wanted), padded(self.architecture.vocabulary, UNIT)), np.float32)
        self._run(chunks, logits.ctypes.data, None)
        return np.split(logits[:, : self.architecture.vocabulary], list(accumulate(wanted))[:-1])

    def choices(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        """The same forward; returns the next token of each of the last `wanted` tokens of each chunk."""
        if any(chunk.needs_logits for chunk in chunks):
            return [choose_in_memory(rows, chunk) for rows, chunk in zip(self.forward(chunks), chunks, strict=True)]
        wanted = [chunk.wanted for chunk in chunks]
        found = (CChoice * sum(wanted))()
        self._run(chunks, None, found)
        each = iter([Choice(choice.token_id, choice.logprob) for choice in found])
        return [tuple(islice(each, count)) for count in wanted]

    def _run(self, chunks: Sequence[Chunk], logits: int | None, choices: ctypes.Array[CChoice] | None) -> None:
        check_call(self.architecture, self._positions, chunks)
        token_ids = [token_id for chunk in chunks for token_id in chunk.token_ids]
        with self._one_call_at_a_time:
            self._library.midfill_kernel_forward(
                self._handle,
                (ctypes.c_int32 * len(token_ids))(*token_ids),
                (CSequence * len(chunks))(*map(_c_sequence, chunks)),
                len(chunks),
                logits,
                choices,
            )

    def _create(self, model: CModel, threads: int) -> int:
        made = ctypes.c_void_p()
        error = self._library.midfill_kernel_create(model, threads, LEVELS.index(self.level), made)
        if error is not None or made.value is None:
            raise KernelUnavailable(f"the CPU kernel cannot start {threads} threads: {(error or b'').decode()}")
        return made.value

    def _model(self, weights: WeightsSource[Matrix], tables: tuple[Any, Any], weight_type: WeightType) -> CModel:
        """Reads each matrix once and packs it; the embedding and the head first, since they are the largest."""
        shape = self.architecture
        outer = vocabulary_type(weight_type)
        largest = weights.head
        packers = PACKERS if isinstance(largest, StoredMatrix) else 1  # weights that are read whole are to be of one layer
        head = self._matrix(pack_matrix(largest, None, outer))
        del largest
        embedding = head if shape.tied_embeddings else self._matrix(pack_matrix(weights.embedding, None, outer))
        layers = (CLayerWeights * shape.layers)(*_each(partial(self._layer, weight_type=weight_type), weights.layers, packers))
        places: dict[bool, int] = {True: 0, False: 0}  # in the state, and of KV
        for index, layer in enumerate(layers):
            kind = shape.kind_of(index)
            layer.kind, layer.state = KIND_NUMBERS[kind], places[kind != "attention"]
            places[kind != "attention"] += shape.state_values(kind) or 1
        cosines, sines = (np.ascontiguousarray(in_numpy(table)[:, : shape.turned // 2], np.float32) for table in tables)
        rule = shape.delta or NO_RULE
        self._kept.append(layers)
        return CModel(
            layers=shape.layers,
            hidden=shape.hidden,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            vocabulary=shape.vocabulary,
            positions=self._positions,
            rotary_dim=shape.turned,
            gated_output=shape.gated_output,
            kept=shape.kept_inputs,
            key_heads=rule.key_heads,
            value_heads=rule.value_heads,
            key_dim=rule.key_dim,
            value_dim=rule.value_dim,
            tiled_heads=rule.tiled_heads,
            window=shape.window,
            gated_mlp=shape.gated_mlp,
            norm_epsilon=shape.norm_epsilon,
            attention_scale=shape.attention_scale,
            embedding_scale=shape.embedding_scale,
            residual_scale=shape.residual_scale,
            embedding=embedding,
            layer_weights=layers,
            final_norm=self._address(
                pad_vector(in_numpy(weights.final_norm).astype(np.float32) * np.float32(shape.logits_scale), BLOCK)
            ),
            final_norm_bias=self._vector(weights.final_norm_bias, BLOCK),
            head=head,
            cosines=self._address(cosines),
            sines=self._address(sines),
        )

    def _layer(self, layer: LayerWeights[Matrix], weight_type: WeightType) -> CLayerWeights:
        delta = layer.delta
        pack_inner = pack_gate_up if self.architecture.gated_mlp else pack_matrix
        # What decides how long is remembered is not quantized: its rows are few.
        rates = None if delta is None else self._matrix(pack_matrix(_unquantized(delta.rates), None, "float32"))
        return CLayerWeights(
            qkv=self._rows_by_type(layer.qkv, layer.qkv_bias, weight_type, rates),
            attention_out=self._matrix(pack_matrix(layer.attention_out, layer.attention_out_bias, weight_type)),
            gate_up=self._matrix(pack_inner(layer.gate_up, layer.gate_up_bias, weight_type)),
            down=self._matrix(pack_matrix(layer.down, layer.down_bias, weight_type)),
            attention_norm=self._vector(layer.attention_norm, BLOCK),
            attention_norm_bias=self._vector(layer.attention_norm_bias, BLOCK),
            mlp_norm=self._vector(layer.mlp_norm, BLOCK),
            mlp_norm_bias=self._vector(layer.mlp_norm_bias, BLOCK),
            q_norm=self._vector(layer.q_norm, 1),
            k_norm=self._vector(layer.k_norm, 1),
            taps=self._address(None if layer.taps is None else np.ascontiguousarray(in_numpy(layer.taps).T, np.float32)),
            decay=self._vector(None if delta is None else delta.decay, 1),
            decay_bias=self._vector(None if delta is None else delta.decay_bias, 1),
            delta_norm=self._vector(None if delta is None else delta.norm, 1),
        )

    def _vector(self, vector: Any, unit: int) -> int | None:
        return None if vector is None else self._address(pad_vector(vector, unit))

    def _rows_by_type(self, weight: Matrix, bias: Any, weight_type: WeightType, following: CMatrix | None) -> CMatrix:
        """Rows of several quantized types, as many GGUF files have, as matrices of one type each, in a list.

        `following` ends the list.
        """
        parts: Sequence[Matrix] = weight.by_type() if isinstance(weight, StoredMatrix) else [weight]
        if any(part.shape[0] % UNIT for part in parts[:-1]):  # padding would come between
            parts = [weight]
        first_rows = list(accumulate((part.shape[0] for part in parts), initial=0))
        for part, first in reversed(list(zip(parts, first_rows, strict=False))):
            of_part = None if bias is None else bias[first : first + part.shape[0]]
            matrix = self._matrix(pack_matrix(part, of_part, weight_type))
            if following is not None:
                self._kept.append(following)
                matrix.next = ctypes.addressof(following)
            following = matrix
        assert following is not None
        return following

    def _matrix(self, matrix: PackedMatrix) -> CMatrix:
        return_free_memory()  # that packing left between the matrices; the allocator would keep it
        addresses = (self._address(matrix.weights), self._address(matrix.scales), self._address(matrix.bias))
        return CMatrix(*addresses, None, matrix.rows, matrix.columns, NUMBER_TYPES[matrix.type])

    def _address(self, array: NDArray[Any] | None) -> int | None:
        """The address of an array's data; the decoder keeps the array alive."""
        if array is None:
            return None
        self._kept.append(array)
        return int(array.ctypes.data)


def _each(
    pack: Callable[[LayerWeights[Matrix]], CLayerWeights], layers: Iterable[LayerWeights[Matrix]], packers: int
) -> list[CLayerWeights]:
    """All layers, packed by so many threads, each of which holds one layer at a time; an error ends them all."""
    packed: dict[int, CLayerWeights] = {}
    left, one_reads, ended = enumerate(layers), threading.Lock(), threading.Event()

    def take() -> tuple[int, LayerWeights[Matrix]] | None:
        with one_reads:
            return None if ended.is_set() else next(left, None)

    def work() -> None:
        try:
            while taken := take():
                packed[taken[0]] = pack(taken[1])
                del taken  # which would hold the layer while the next one is read
        except BaseException:
            ended.set()
            raise

    with ThreadPoolExecutor(packers) as pool:
        try:
            for worker in [pool.submit(work) for _ in range(packers)]:
                worker.result()
        finally:
            ended.set()
    return [packed[place] for place in sorted(packed)]


NO_RULE = DeltaRule(key_heads=0, value_heads=0, key_dim=0, value_dim=0)


def _unquantized(weight: Matrix) -> Matrix:
    if isinstance(weight, StoredMatrix):
        weight = weight[: weight.shape[0]]
    if not isinstance(weight, QuantizedMatrix):
        return weight
    import torch  # here, since only recurrent layers need it

    values: Matrix = weight.map(torch.as_tensor).dequantized()
    return values


def _c_sequence(chunk: Chunk) -> CSequence:
    workspace = _in_main_memory(chunk.workspace)
    layer, value, head, _, _ = workspace.strides
    before, after = None, None
    if workspace.snapshots is not None:
        before, after = cast("RecurrentWorkspace", workspace).states(chunk.start, chunk.stop)
    return CSequence(
        kv=workspace.address,
        layer_stride=layer,
        value_stride=value,
        head_stride=head,
        before=None if before is None else before.data_ptr(),
        after=None if after is None else after.data_ptr(),
        kv_type=KV_DTYPES.index(workspace.shape.dtype),
        tokens=len(chunk.token_ids),
        start=chunk.start,
        wanted=chunk.wanted,
    )
