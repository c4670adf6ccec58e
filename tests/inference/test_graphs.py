from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from inference.chunk import Chunk
from inference.decoder import Decoder
from inference.graphs import TOKEN_BUCKETS, VISIBLE_TOKENS, GraphedDecoder, cuda_graph_recorder
from inference.model import Choice
from inference.quantized import Rounding, quantized
from kv_store.workspace import KVWorkspace
from tests.inference.kernel.models import POSITIONS, RandomModel, Shape

SMALL = Shape(hidden=32, intermediate=48, head_dim=16)


class OperatorTape(TorchDispatchMode):
    """Records like a CUDA graph: operators with the tensors they were given, replayed into the tensors they made."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._calls.append((func, args, kwargs or {}, result))
        return result

    def replay(self) -> None:
        for func, args, kwargs, recorded in self._calls:
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(recorded), tree_leaves(again), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


@dataclass
class TapeRecorder:
    count: int = 0

    def __call__(self, compute: Callable[[], None]) -> Callable[[], None]:
        self.count += 1
        with OperatorTape() as tape:
            compute()
        return tape.replay


def decoder_of(model: RandomModel, context_tokens: int = POSITIONS) -> Decoder:
    return Decoder(model.architecture, {}, model.weights, context_tokens)


def moved(value: Any, device: str) -> Any:
    """Weights with all their tensors on a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        return tuple(moved(item, device) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: moved(getattr(value, field.name), device) for field in fields(value)})
    return value


def agree(found: tuple[Choice, ...], expected: tuple[Choice, ...]) -> bool:
    return [choice.token_id for choice in found] == [choice.token_id for choice in expected] and all(
        a.logprob == pytest.approx(b.logprob, abs=1e-4) for a, b in zip(found, expected, strict=True)
    )


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 40), st.integers(0, 8)), min_size=1, max_size=12))
def test_replays_give_what_the_decoder_gives(steps: list[tuple[int, int, int]]) -> None:
    model = RandomModel(SMALL)
    plain, recorder = decoder_of(model), TapeRecorder()
    graphed = GraphedDecoder(decoder_of(model), recorder)
    pairs = [(plain.new_workspace(), graphed.new_workspace()) for _ in range(2)]
    token_ids, stops, keys = model.token_ids(POSITIONS), [0, 0], set[tuple[int, int]]()
    for place, count, back in steps:
        start = max(0, stops[place] - back)  # as after a backspace, or drafts that were rejected
        stop = min(POSITIONS, start + count)
        wanted = min(3, stop - start)
        found, expected = (
            decoder.forward([Chunk(token_ids[start:stop], start, workspace, wanted)])[0]
            for decoder, workspace in zip((graphed, plain), reversed(pairs[place]), strict=True)
        )
        assert agree(found, expected)
        ours, theirs = (workspace.buffer[:, :, :, :stop] for workspace in reversed(pairs[place]))
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
        stops[place] = stop
        bucket = next((size for size in TOKEN_BUCKETS if size >= stop - start), None)
        if bucket is not None and start + bucket <= POSITIONS:
            keys.add((place, bucket))
    assert recorder.count == len(keys)  # each shape is recorded once for each workspace


@pytest.mark.parametrize("rounding", ["int8", "fp8"])
def test_replays_with_rounded_weights(rounding: Rounding) -> None:
    model = RandomModel(replace(SMALL, vocabulary=144))
    weights = quantized(model.weights, rounding, torch.device("cpu"))
    plain, recorder = Decoder(model.architecture, {}, weights, POSITIONS), TapeRecorder()
    graphed = GraphedDecoder(Decoder(model.architecture, {}, weights, POSITIONS), recorder)
    token_ids, workspaces = model.token_ids(60), [plain.new_workspace(), plain.new_workspace()]
    for start, stop in ((0, 16), (16, 32), (32, 33), (33, 34), (34, 38), (36, 40)):
        expected, found = (
            decoder.forward([Chunk(token_ids[start:stop], start, workspace, 1)])[0]
            for decoder, workspace in zip((plain, graphed), workspaces, strict=True)
        )
        assert agree(found, expected)
    assert recorder.count == 3


def test_what_is_visible_grows_by_buckets() -> None:
    model, recorder = RandomModel(SMALL), TapeRecorder()
    decoder = Decoder(model.architecture, {}, model.weights, context_tokens=2 * VISIBLE_TOKENS + 8)
    graphed = GraphedDecoder(decoder, recorder)
    workspace = graphed.new_workspace()
    for start in (0, 1, VISIBLE_TOKENS - 1, VISIBLE_TOKENS, 2 * VISIBLE_TOKENS - 1, 2 * VISIBLE_TOKENS, 1):
        graphed.forward([Chunk([3], start, workspace, 1)])
    assert recorder.count == 3


def test_several_chunks_and_long_ones_are_the_decoders_own() -> None:
    model, recorder = RandomModel(SMALL), TapeRecorder()
    plain, graphed = decoder_of(model), GraphedDecoder(decoder_of(model), recorder)

    def answers(decoder: Decoder | GraphedDecoder) -> list[tuple[Choice, ...]]:
        workspaces: list[KVWorkspace] = [decoder.new_workspace() for _ in range(2)]
        sequences = [model.token_ids(count, seed=count) for count in (TOKEN_BUCKETS[-1] + 1, 5)]
        chunks = [Chunk(ids, 0, place, 1) for ids, place in zip(sequences, workspaces, strict=True)]
        return [*decoder.forward(chunks), *decoder.forward([Chunk([1, 2], 5, workspaces[1], 2)])]

    assert all(map(agree, answers(graphed), answers(plain)))
    assert recorder.count == 1


def test_healing_chooses_among_the_allowed() -> None:
    model = RandomModel(SMALL)
    plain, graphed = decoder_of(model), GraphedDecoder(decoder_of(model), TapeRecorder())
    allowed = np.array([7, 40, 99])
    found, expected = (
        decoder.forward([Chunk(model.token_ids(6), 0, decoder.new_workspace(), 1, allowed)])[0]
        for decoder in (graphed, plain)
    )
    assert agree(found, expected)
    assert found[0].token_id in allowed


def test_the_end_of_the_workspace_is_reached_without_padding() -> None:
    model, recorder = RandomModel(SMALL), TapeRecorder()
    plain, graphed = decoder_of(model, 64), GraphedDecoder(decoder_of(model, 64), recorder)
    token_ids, workspaces = model.token_ids(64), [plain.new_workspace(), plain.new_workspace()]
    for start, stop in ((0, 59), (59, 64)):
        answers = [
            decoder.forward([Chunk(token_ids[start:stop], start, workspace, 1)])[0]
            for decoder, workspace in zip((plain, graphed), workspaces, strict=True)
        ]
        assert agree(answers[1], answers[0])
    assert recorder.count == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_cuda_graphs_give_what_the_decoder_gives() -> None:
    model = RandomModel(SMALL)
    weights = moved(model.weights, "cuda")
    plain = Decoder(model.architecture, {}, weights, POSITIONS)
    graphed = GraphedDecoder(Decoder(model.architecture, {}, weights, POSITIONS), cuda_graph_recorder())
    token_ids, workspaces = model.token_ids(200), [plain.new_workspace(), plain.new_workspace()]
    for start, stop in ((0, 100), (100, 101), (101, 102), (102, 106), (104, 120), (120, 121)):
        answers = [
            decoder.forward([Chunk(token_ids[start:stop], start, workspace, 1)])[0]
            for decoder, workspace in zip((plain, graphed), workspaces, strict=True)
        ]
        assert agree(answers[1], answers[0])
