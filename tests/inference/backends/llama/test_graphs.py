from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inference.backends import cuda as cuda_module
from inference.backends.cuda import RESERVED_SHARE, spare_bytes
from inference.backends.llama.decoder import Decoder
from inference.backends.llama.graphs import FIRST_BUCKETS, MOST_IN_TURN, TOKEN_BUCKETS, VISIBLE_TOKENS, GraphedDecoder
from inference.backends.llama.quantized import quantized
from inference.backends.model import Choice, Chunk
from kv_store.workspace import KVWorkspace
from protocol.settings import Weights
from tests.inference.backends.cpu.models import POSITIONS, RandomModel, Shape, mapped
from tests.inference.conftest import REAL_GPU
from tests.inference.simulated_cuda import SimulatedCuda

SMALL = Shape(hidden=32, intermediate=48, head_dim=16)


def decoder_of(model: RandomModel, context_tokens: int = POSITIONS) -> Decoder:
    return Decoder(model.architecture, {}, model.weights, context_tokens)


def moved(value: Any, goal: str | torch.dtype) -> Any:
    """Weights with all their tensors on a device, or of a dtype."""
    return mapped(value, lambda tensor: tensor.to(goal))


def agree(found: tuple[Choice, ...], expected: tuple[Choice, ...]) -> bool:
    return [choice.token_id for choice in found] == [choice.token_id for choice in expected] and all(
        a.logprob == pytest.approx(b.logprob, abs=1e-4) for a, b in zip(found, expected, strict=True)
    )


def graphed_of(model: RandomModel, context_tokens: int = POSITIONS) -> GraphedDecoder:
    return GraphedDecoder(Decoder(model.architecture, {}, moved(model.weights, "cuda:0"), context_tokens), split_attention=False)


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
    workspace, token_ids = graphed.new_workspace(), model.token_ids(32)
    first = len(FIRST_BUCKETS)
    assert (simulated.captures, simulated.replays) == (first, first)  # each is replayed once when it is recorded
    graphed.forward([Chunk(token_ids, 0, workspace, 1)])
    assert (simulated.captures, simulated.replays) == (first, first)  # not while somebody waits
    assert graphed.prepare()
    graphed.forward([Chunk(token_ids, 0, workspace, 1)])  # what was missed is the first
    assert (simulated.captures, simulated.replays) == (first + 1, first + 2)
    assert prepare(graphed) == len(TOKEN_BUCKETS) - first - 1
    other = graphed.new_workspace()
    assert prepare(graphed) == len(TOKEN_BUCKETS) - first
    simulated.kernels = simulated.synchronizations = simulated.replays = 0
    graphed.forward([Chunk(token_ids[:3], 0, other, 1)])
    assert simulated.replays == 1
    assert simulated.kernels < 10  # tokens and their place go in, the choice comes out
    assert simulated.synchronizations == 2  # for the token, and for its probability


@pytest.mark.parametrize(("start", "count"), [(0, 1), (0, 16), (VISIBLE_TOKENS - 16, 5), (VISIBLE_TOKENS + 3, 2)])
def test_the_first_typing_in_a_file_is_replayed(simulated: SimulatedCuda, start: int, count: int) -> None:
    model = RandomModel(SMALL)
    plain, graphed = decoder_of(model, 2 * VISIBLE_TOKENS), graphed_of(model, 2 * VISIBLE_TOKENS)
    workspaces = [plain.new_workspace(), graphed.new_workspace()]
    token_ids = model.token_ids(start + count)
    for decoder, workspace in zip((plain, graphed.plain), workspaces, strict=True):
        if start:
            decoder.forward([Chunk(token_ids[:start], 0, workspace)])
    before, kernels = simulated.replays, simulated.kernels
    expected, found = (
        decoder.forward([Chunk(token_ids[start:], start, workspace, 1)])[0]
        for decoder, workspace in zip((plain, graphed), workspaces, strict=True)
    )
    assert agree(found, expected)
    assert simulated.replays == before + 1
    assert simulated.kernels - kernels < 10


def test_graphs_are_recorded_while_the_reserve_stays_free(simulated: SimulatedCuda, caplog: pytest.LogCaptureFixture) -> None:
    simulated.node_bytes = 2**14  # as a driver takes
    model = RandomModel(SMALL)
    graphed, token_ids = graphed_of(model), model.token_ids(20)
    workspace = graphed.new_workspace()
    before = graphed.forward([Chunk(token_ids, 0, workspace, 1)])
    assert graphed.graph_bytes > 50 * simulated.node_bytes
    assert graphed.prepare()
    captures = simulated.captures
    used = simulated.total_bytes - simulated.free()
    simulated.total_bytes = int((used + graphed.graph_bytes // 2) / (1 - RESERVED_SHARE))
    assert 0 < spare_bytes(graphed.device) < graphed.graph_bytes
    for _ in range(3):
        assert not graphed.prepare()
    assert simulated.captures == captures
    other = graphed.new_workspace()  # has none, and goes on without
    assert simulated.captures == captures
    assert agree(graphed.forward([Chunk(token_ids, 0, other, 1)])[0], before[0])
    simulated.total_bytes = 2**30  # another program has ended
    assert graphed.prepare()
    assert simulated.captures == captures + 1
    assert not caplog.text


@pytest.mark.parametrize("at_fault", ["the driver", "the allocator"])
def test_after_an_error_no_more_graphs_are_recorded(
    simulated: SimulatedCuda, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, at_fault: str
) -> None:
    model = RandomModel(SMALL)
    graphed, token_ids = graphed_of(model), model.token_ids(20)
    workspace = graphed.new_workspace()
    before = graphed.forward([Chunk(token_ids, 0, workspace, 1)])
    captures = simulated.captures
    with monkeypatch.context() as patch:
        patch.setattr(cuda_module, "spare_bytes", lambda _: 2**30)  # another program was faster
        if at_fault == "the driver":
            simulated.node_bytes = 2**30
        else:
            simulated.total_bytes = simulated.allocated() + 1
        for _ in range(3):
            assert not graphed.prepare()
    assert simulated.captures <= captures + 1
    simulated.node_bytes, simulated.total_bytes = 64, 2**30
    assert not graphed.prepare()
    assert len(caplog.records) == 1
    assert f"no more than {len(FIRST_BUCKETS)} CUDA graphs are recorded: CUDA" in caplog.text
    assert agree(graphed.forward([Chunk(token_ids[-1:], 19, workspace, 1)])[0], before[0])


@pytest.mark.parametrize(("sequences", "replays"), [(MOST_IN_TURN, MOST_IN_TURN), (MOST_IN_TURN + 1, 0)])
def test_a_few_sequences_are_replayed_in_turn(cuda: SimulatedCuda | None, sequences: int, replays: int) -> None:
    model = RandomModel(SMALL)
    plain, graphed = decoder_of(model), graphed_of(model)
    answers = []
    for decoder in (plain, graphed):
        workspaces = [decoder.new_workspace() for _ in range(sequences)]
        before = 0 if cuda is None else cuda.replays
        chunks = [Chunk(model.token_ids(1 + place, seed=place), 0, each, 1) for place, each in enumerate(workspaces)]
        answers.append(decoder.forward(chunks))
    assert all(map(agree, answers[1], answers[0]))
    assert cuda is None or cuda.replays - before == replays


def test_with_one_chunk_without_a_graph_all_share_a_forward(simulated: SimulatedCuda) -> None:
    model = RandomModel(SMALL)
    graphed = graphed_of(model)
    workspaces = [graphed.new_workspace() for _ in range(2)]
    before = simulated.replays
    graphed.forward([Chunk([1], 0, workspaces[0], 1), Chunk([1] * 33, 0, workspaces[1], 1)])
    assert simulated.replays == before


STARTS = (*range(31, 35), *range(63, 67), *range(511, 515)) if REAL_GPU else (31, 512)
"""Numbers of visible tokens around the blocks of attention kernels, which a simulated device does not have."""
COUNTS = (1, 2, 5, 16) if REAL_GPU else (1, 5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("group", [1, 3, 6, 7])
def test_every_length_and_group_gives_what_a_cpu_gives(cuda: SimulatedCuda | None, group: int, dtype: torch.dtype) -> None:
    context_tokens = 545  # no kernel's favourite
    shape = Shape(layers=1, hidden=64, intermediate=48, head_dim=64, kv_heads=2, group=group, vocabulary=64)
    model = RandomModel(shape, dtype=dtype)
    exact = Decoder(model.architecture, {}, moved(model.weights, torch.float32), context_tokens)
    graphed = graphed_of(model, context_tokens)
    there, here = graphed.new_workspace(), exact.new_workspace()
    here.buffer.normal_(generator=torch.Generator().manual_seed(3))
    resident = here.buffer.to(dtype)
    wrong = 0.0
    for start in STARTS:
        for count in COUNTS:
            token_ids = model.token_ids(count)
            for decoder in (graphed, graphed.plain):
                here.buffer.copy_(resident)
                there.buffer.copy_(resident.clone())
                here.buffer[:, :, :, start:], there.buffer[:, :, :, start:] = 100, 100  # what is behind must not count
                (expected,), (found,) = (
                    each.forward([Chunk(token_ids, start, place, count, forced=token_ids)])
                    for each, place in ((exact, here), (decoder, there))
                )
                wrong = max(wrong, *(abs(a.logprob - b.logprob) for a, b in zip(found, expected, strict=True)))
    assert wrong < (1e-4 if dtype == torch.float32 else 0.1)
    assert cuda is None or cuda.replays - cuda.captures == len(STARTS) * len(COUNTS)


@pytest.mark.parametrize("scheme", ["int8"])
def test_replays_with_rounded_weights(cuda: SimulatedCuda | None, scheme: Weights) -> None:
    pytest.importorskip("torchao")
    model = RandomModel(replace(SMALL, vocabulary=144))
    plain = Decoder(model.architecture, {}, quantized(model.weights, scheme, torch.device("cpu")), POSITIONS)
    weights = quantized(model.weights, scheme, torch.device("cuda", 0))
    graphed = GraphedDecoder(Decoder(model.architecture, {}, weights, POSITIONS), split_attention=False)
    token_ids, workspaces = model.token_ids(60), [plain.new_workspace(), graphed.new_workspace()]
    prepare(graphed)
    for start, stop in ((0, 16), (16, 32), (32, 33), (33, 34), (34, 38), (36, 40)):
        expected, found = (
            decoder.forward([Chunk(token_ids[start:stop], start, workspace, 1)])[0]
            for decoder, workspace in zip((plain, graphed), workspaces, strict=True)
        )
        assert agree(found, expected)
    assert cuda is None or cuda.replays - cuda.captures == 6


def test_what_is_visible_grows_by_buckets(cuda: SimulatedCuda | None) -> None:
    model = RandomModel(SMALL)
    graphed = graphed_of(model, context_tokens=2 * VISIBLE_TOKENS + 8)
    workspace = graphed.new_workspace()
    assert prepare(graphed) == 3 * len(TOKEN_BUCKETS) - len(FIRST_BUCKETS)
    for start in (0, 1, VISIBLE_TOKENS - 1, VISIBLE_TOKENS, 2 * VISIBLE_TOKENS - 1, 2 * VISIBLE_TOKENS, 1):
        graphed.forward([Chunk([3], start, workspace, 1)])
    assert cuda is None or cuda.replays - cuda.captures == 7


def test_long_chunks_are_the_decoders_own(cuda: SimulatedCuda | None) -> None:
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
    assert cuda is None or cuda.replays - cuda.captures == 1


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
    assert cuda is None or cuda.replays - cuda.captures == 0
