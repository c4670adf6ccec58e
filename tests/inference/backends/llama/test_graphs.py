from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from inference.backends.chunk import Chunk
from inference.backends.llama.decoder import Decoder
from inference.backends.llama.graphs import TOKEN_BUCKETS, VISIBLE_TOKENS, GraphedDecoder
from inference.backends.llama.quantized import quantized
from inference.backends.model import Choice
from kv_store.workspace import KVWorkspace
from protocol.settings import Weights
from tests.inference.backends.cpu.models import POSITIONS, RandomModel, Shape
from tests.inference.simulated_cuda import SimulatedCuda

SMALL = Shape(hidden=32, intermediate=48, head_dim=16)


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


def graphed_of(model: RandomModel, context_tokens: int = POSITIONS) -> GraphedDecoder:
    return GraphedDecoder(Decoder(model.architecture, {}, moved(model.weights, "cuda:0"), context_tokens))


def prepare(graphed: GraphedDecoder) -> int:
    """Record all graphs; how many."""
    count = 0
    while graphed.prepare():
        count += 1
    return count


@settings(deadline=None, max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 40), st.integers(0, 8)), min_size=2, max_size=5))
def test_replays_give_what_the_decoder_gives(cuda: SimulatedCuda | None, steps: list[tuple[int, int, int]]) -> None:
    model = RandomModel(SMALL)
    plain, graphed = decoder_of(model), graphed_of(model)
    pairs = [(plain.new_workspace(), graphed.new_workspace()) for _ in range(2)]
    token_ids, stops = model.token_ids(POSITIONS), [0, 0]
    for place, count, back in steps:
        start = max(0, stops[place] - back)  # as after a backspace, or drafts that were rejected
        stop = min(POSITIONS, start + count)
        wanted = min(3, stop - start)
        found, expected = (
            decoder.forward([Chunk(token_ids[start:stop], start, workspace, wanted)])[0]
            for decoder, workspace in zip((graphed, plain), reversed(pairs[place]), strict=True)
        )
        assert agree(found, expected)
        graphed.prepare()  # one graph after every forward, for some workspace, changes nothing that is resident
        ours, theirs = (workspace.buffer[:, :, :, :stop].cpu() for workspace in reversed(pairs[place]))
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
        stops[place] = stop


def test_graphs_are_recorded_ahead_and_then_replayed(simulated: SimulatedCuda) -> None:
    model = RandomModel(SMALL)
    graphed = graphed_of(model)
    workspace, token_ids = graphed.new_workspace(), model.token_ids(20)
    graphed.forward([Chunk(token_ids[:16], 0, workspace, 1)])
    graphed.forward([Chunk(token_ids[16:17], 16, workspace, 1)])
    assert (simulated.captures, simulated.replays) == (0, 0)  # not while somebody waits
    assert graphed.prepare()
    assert graphed.prepare()
    for start, stop in ((0, 16), (16, 17)):  # those that were missed are the first
        graphed.forward([Chunk(token_ids[start:stop], start, workspace, 1)])
    assert (simulated.captures, simulated.replays) == (2, 2)
    assert prepare(graphed) == len(TOKEN_BUCKETS) - 2
    other = graphed.new_workspace()
    assert prepare(graphed) == len(TOKEN_BUCKETS)
    simulated.kernels = simulated.synchronizations = 0
    graphed.forward([Chunk(token_ids[:3], 0, other, 1)])
    assert simulated.replays == 3
    assert simulated.kernels < 10  # tokens and their place go in, the choice comes out
    assert simulated.synchronizations == 2  # for the token, and for its probability


def test_without_memory_no_more_graphs_are_recorded(simulated: SimulatedCuda) -> None:
    model = RandomModel(SMALL)
    graphed, token_ids = graphed_of(model), model.token_ids(20)
    workspace = graphed.new_workspace()
    before = graphed.forward([Chunk(token_ids, 0, workspace, 1)])
    assert graphed.prepare()
    simulated.total_bytes = simulated.allocated() + 1
    assert not graphed.prepare()
    assert simulated.captures == 1
    assert not graphed.prepare()
    assert simulated.captures == 1
    simulated.total_bytes = 2**30
    assert agree(graphed.forward([Chunk(token_ids[-1:], 19, workspace, 1)])[0], before[0])


@pytest.mark.parametrize("scheme", ["int8"])
def test_replays_with_rounded_weights(cuda: SimulatedCuda | None, scheme: Weights) -> None:
    model = RandomModel(replace(SMALL, vocabulary=144))
    plain = Decoder(model.architecture, {}, quantized(model.weights, scheme, torch.device("cpu")), POSITIONS)
    weights = quantized(model.weights, scheme, torch.device("cuda", 0))
    graphed = GraphedDecoder(Decoder(model.architecture, {}, weights, POSITIONS))
    token_ids, workspaces = model.token_ids(60), [plain.new_workspace(), graphed.new_workspace()]
    prepare(graphed)
    for start, stop in ((0, 16), (16, 32), (32, 33), (33, 34), (34, 38), (36, 40)):
        expected, found = (
            decoder.forward([Chunk(token_ids[start:stop], start, workspace, 1)])[0]
            for decoder, workspace in zip((plain, graphed), workspaces, strict=True)
        )
        assert agree(found, expected)
    assert cuda is None or cuda.replays == 6


def test_what_is_visible_grows_by_buckets(cuda: SimulatedCuda | None) -> None:
    model = RandomModel(SMALL)
    graphed = graphed_of(model, context_tokens=2 * VISIBLE_TOKENS + 8)
    workspace = graphed.new_workspace()
    assert prepare(graphed) == 3 * len(TOKEN_BUCKETS)
    for start in (0, 1, VISIBLE_TOKENS - 1, VISIBLE_TOKENS, 2 * VISIBLE_TOKENS - 1, 2 * VISIBLE_TOKENS, 1):
        graphed.forward([Chunk([3], start, workspace, 1)])
    assert cuda is None or cuda.replays == 7


def test_several_chunks_and_long_ones_are_the_decoders_own(cuda: SimulatedCuda | None) -> None:
    model = RandomModel(SMALL)
    plain, graphed = decoder_of(model), graphed_of(model)

    def answers(decoder: Decoder | GraphedDecoder) -> list[tuple[Choice, ...]]:
        workspaces: list[KVWorkspace] = [decoder.new_workspace() for _ in range(2)]
        if isinstance(decoder, GraphedDecoder):
            prepare(decoder)
        sequences = [model.token_ids(count, seed=count) for count in (TOKEN_BUCKETS[-1] + 1, 5)]
        chunks = [Chunk(ids, 0, place, 1) for ids, place in zip(sequences, workspaces, strict=True)]
        return [*decoder.forward(chunks), *decoder.forward([Chunk([1, 2], 5, workspaces[1], 2)])]

    assert all(map(agree, answers(graphed), answers(plain)))
    assert cuda is None or cuda.replays == 1


def test_healing_chooses_among_the_allowed(cuda: SimulatedCuda | None) -> None:
    model = RandomModel(SMALL)
    plain, graphed = decoder_of(model), graphed_of(model)
    allowed = np.array([7, 40, 99])
    workspaces = [graphed.new_workspace(), plain.new_workspace()]
    prepare(graphed)
    found, expected = (
        decoder.forward([Chunk(model.token_ids(6), 0, workspace, 1, allowed)])[0]
        for decoder, workspace in zip((graphed, plain), workspaces, strict=True)
    )
    assert agree(found, expected)
    assert found[0].token_id in allowed


def test_the_end_of_the_workspace_is_reached_without_padding(cuda: SimulatedCuda | None) -> None:
    model = RandomModel(SMALL)
    plain, graphed = decoder_of(model, 64), graphed_of(model, 64)
    token_ids, workspaces = model.token_ids(64), [plain.new_workspace(), graphed.new_workspace()]
    prepare(graphed)
    for start, stop in ((0, 59), (59, 64)):
        answers = [
            decoder.forward([Chunk(token_ids[start:stop], start, workspace, 1)])[0]
            for decoder, workspace in zip((plain, graphed), workspaces, strict=True)
        ]
        assert agree(answers[1], answers[0])
    assert cuda is None or cuda.replays == 0
