"""The kernels of split attention, exactly, in Triton's interpreter; skipped where Triton is not installed."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from importlib import import_module
from types import ModuleType

import pytest
import torch
from torch import Tensor

from inference.backends.llama.decoder import Decoder
from inference.backends.llama.graphs import FIRST_BUCKETS, TOKEN_BUCKETS, GraphedDecoder
from inference.backends.model import Choice, Chunk
from tests.inference.backends.cpu.models import RandomModel
from tests.inference.backends.llama.test_graphs import SMALL, agree, moved
from tests.inference.simulated_cuda import SimulatedCuda

NAME = "inference.backends.llama.split_attention"
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
ON_GPU = bool(os.environ.get("MIDFILL_TEST_GPU"))


@pytest.fixture
def split_attention() -> ModuleType:
    """The module, with kernels that are interpreted unless this machine has a GPU for the tests."""
    pytest.importorskip("triton")
    return import_module(NAME)


def reference(q: Tensor, buffer: Tensor, layer: int, start: int) -> Tensor:
    """Causal attention in float64, shaped as q [kv_heads, group, tokens, head_dim]."""
    tokens, size = q.shape[2:]
    keys, values = buffer[layer, :, :, : start + tokens].double()
    scores = torch.einsum("hgtd,hnd->hgtn", q.double(), keys) * size**-0.5
    hidden = torch.arange(start + tokens) > torch.arange(start, start + tokens)[:, None]
    return torch.einsum("hgtn,hnd->hgtd", scores.masked_fill(hidden, float("-inf")).softmax(-1), values)


SHAPES = [
    (1, 2, 7, 64, 0),
    (1, 3, 3, 64, 31),
    (1, 2, 6, 128, 63),
    (2, 1, 1, 32, 64),
    (4, 2, 3, 64, 30),
    (5, 1, 7, 16, 511),
    (16, 1, 6, 64, 62),
    (32, 1, 3, 32, 510),
]


# On a GPU each is compiled for seconds, so fewer run there; Triton's interpreter has no bfloat16.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16] if ON_GPU else [torch.float32, torch.float16])
@pytest.mark.parametrize(("tokens", "heads", "group", "size", "start"), SHAPES[::3] if ON_GPU else SHAPES)
def test_it_is_attention(
    split_attention: ModuleType, tokens: int, heads: int, group: int, size: int, start: int, dtype: torch.dtype
) -> None:
    device = "cuda:0" if ON_GPU else "cpu"
    generator = torch.Generator().manual_seed(start)
    layers, layer, longest = 2, 1, 576
    buffer = torch.full((layers, 2, heads, longest, size), float("nan"), dtype=dtype)  # behind the tokens it stays so
    buffer[:, :, :, :start] = torch.randn(layers, 2, heads, start, size, generator=generator)
    qkv = torch.randn(tokens, heads * group + 2 * heads, size, generator=generator).to(dtype).transpose(0, 1)
    q, k, v = torch.split(qkv, [heads * group, heads, heads])  # strided as in the decoder
    there = buffer.clone().to(device)
    found = split_attention.attend(
        q.to(device).view(heads, group, tokens, size),
        k.to(device),
        v.to(device),
        torch.tensor([there.data_ptr()], device=device),
        torch.tensor([start], device=device),
        longest,
        layer,
        size**-0.5,
    )
    buffer[layer, 0, :, start : start + tokens], buffer[layer, 1, :, start : start + tokens] = k, v
    torch.testing.assert_close(there.cpu(), buffer, rtol=0, atol=0, equal_nan=True)
    expected = reference(q.reshape(heads, group, tokens, size), buffer, layer, start)
    error = (found.cpu().double() - expected).abs().max() / expected.abs().max()
    assert error < TOLERANCE[dtype]


def test_parts_are_as_many_as_fill_a_gpu_and_have_keys(split_attention: ModuleType) -> None:
    found = {shape: split_attention._splits(*shape) for shape in ((2, 4096), (3, 4096), (8, 32768), (2, 128), (1, 64))}
    assert found == {(2, 4096): 64, (3, 4096): 32, (8, 32768): 16, (2, 128): 2, (1, 64): 1}


@pytest.mark.parametrize(("size", "can"), [(64, True), (16, True), (8, False), (80, False)])
def test_heads_of_other_sizes_are_masked(split_attention: ModuleType, size: int, *, can: bool) -> None:
    architecture = RandomModel(SMALL).architecture
    assert split_attention.is_supported(replace(architecture, head_dim=size), torch.bfloat16) is can


def test_one_graph_per_bucket_serves_every_workspace(
    split_attention: ModuleType, simulated: SimulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.library._scoped_library("midfill_test", "DEF") as library:
        schema = "(Tensor q, Tensor k, Tensor v, Tensor address, Tensor start, int max_tokens, int layer, float scale) -> Tensor"
        library.define(f"attend{schema}")  # so that the simulated device sees the kernels as one operator
        library.impl("attend", split_attention.attend, "CPU")
        monkeypatch.setattr(split_attention, "attend", torch.ops.midfill_test.attend)
        model = RandomModel(replace(SMALL, layers=1))
        plain = Decoder(model.architecture, {}, model.weights, 128)
        weights = moved(model.weights, "cuda:0")
        graphed = GraphedDecoder(Decoder(model.architecture, {}, weights, 128), split_attention=True)
        assert graphed.splits_attention
        pairs = [(plain.new_workspace(), graphed.new_workspace()) for _ in range(2)]
        assert simulated.captures == len(FIRST_BUCKETS)  # for both workspaces
        assert not simulated.masks
        token_ids, answers = model.token_ids(20), list[list[tuple[Choice, ...]]]()
        for place, start, stop in ((0, 0, 3), (1, 0, 1), (0, 3, 4), (1, 1, 9), (0, 2, 3)):
            expected, found = (
                decoder.forward([Chunk(token_ids[start + place : stop + place], start, workspace, 1)])[0]
                for decoder, workspace in zip((plain, graphed), pairs[place], strict=True)
            )
            assert agree(found, expected)
        assert simulated.replays - simulated.captures == 5
        assert len(set(graphed._missing())) == len(TOKEN_BUCKETS) - len(FIRST_BUCKETS)
        for replays in (2, 1):  # in turn, and when that has been recorded in one graph
            before = simulated.replays
            for decoder, *places in zip((plain, graphed), *pairs, strict=True):
                answers.append(decoder.forward([Chunk(token_ids[5:7], 4, places[0], 2), Chunk([9], 2, places[1], 1)]))
            assert all(map(agree, answers.pop(), answers.pop()))
            assert simulated.replays - before == replays
            while graphed.prepare():
                pass


def test_without_triton_graphs_are_masked(
    simulated: SimulatedCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    model = RandomModel(SMALL)
    decoder = Decoder(model.architecture, {}, moved(model.weights, "cuda:0"), 64)
    assert not GraphedDecoder(decoder, split_attention=True).splits_attention
    assert "attention is not split over keys" in caplog.text


def test_where_the_kernels_fail_graphs_are_masked(
    split_attention: ModuleType, simulated: SimulatedCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("the kernel cannot be compiled")

    monkeypatch.setattr(split_attention, "attend", fail)
    model = RandomModel(replace(SMALL, layers=1))
    decoder = Decoder(model.architecture, {}, moved(model.weights, "cuda:0"), 64)
    graphed = GraphedDecoder(decoder, split_attention=True)
    workspace = graphed.new_workspace()
    assert not graphed.splits_attention
    assert "the kernel cannot be compiled" in caplog.text
    assert graphed.prepare()
    before = simulated.replays
    graphed.forward([Chunk([1], 0, workspace, 1)])
    assert simulated.replays == before + 1
