"""The kernels of split attention, exactly, in Triton's interpreter; skipped where Triton is not installed."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from types import ModuleType
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor
from torch.library import Library

from inference.backends.llama.decoder import Decoder, rotate
from inference.backends.llama.graphs import FIRST_BUCKETS, TOKEN_BUCKETS, GraphedDecoder
from inference.backends.model import Choice, Chunk
from kv_store.main_memory import KVShape
from kv_store.workspace import KVWorkspace
from tests.inference.backends.cpu.models import RandomModel
from tests.inference.backends.llama.test_graphs import SMALL, agree, moved
from tests.inference.simulated_cuda import SimulatedCuda

NAME = "inference.backends.llama.split_attention"
FUSED = "inference.backends.llama.fused"
TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
ON_GPU = bool(os.environ.get("MIDFILL_TEST_GPU"))


@pytest.fixture
def split_attention() -> ModuleType:
    """The module, with kernels that are interpreted unless this machine has a GPU for the tests."""
    pytest.importorskip("triton")
    return import_module(NAME)


@pytest.fixture
def fused(split_attention: ModuleType) -> ModuleType:
    """The module that calls it."""
    assert split_attention
    return import_module(FUSED)


def reference(q: Tensor, buffer: Tensor, layer: int, start: int) -> Tensor:
    """Causal attention in float64 of q [tokens, kv_heads, group, head_dim], shaped as q."""
    tokens, size = q.shape[0], q.shape[-1]
    keys, values = buffer[layer, :, :, : start + tokens].double()
    scores = torch.einsum("thgd,hnd->hgtn", q.double(), keys) * size**-0.5
    hidden = torch.arange(start + tokens) > torch.arange(start, start + tokens)[:, None]
    return torch.einsum("hgtn,hnd->thgd", scores.masked_fill(hidden, float("-inf")).softmax(-1), values)


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
@pytest.mark.parametrize("normed", [False, True])
def test_it_is_attention(
    split_attention: ModuleType, tokens: int, heads: int, group: int, size: int, start: int, dtype: torch.dtype, *, normed: bool
) -> None:
    """Of two sequences, whose rows follow each other, in workspaces of their own."""
    device = "cuda:0" if ON_GPU else "cpu"
    generator = torch.Generator().manual_seed(start)
    layers, layer, longest, starts = 2, 1, 576, (start, start // 2)
    shape = KVShape(layers, heads, size, str(dtype).removeprefix("torch."))
    kinds, epsilon = [heads * group, heads, heads], 1e-6
    qkv = torch.randn(2 * tokens, sum(kinds), size, generator=generator).to(dtype)
    norms = [torch.randn(size, generator=generator).to(dtype) if normed else None for _ in range(2)]
    angles = torch.randn(longest, size // 2, generator=generator).repeat(1, 2)
    tables = angles.cos().to(dtype), angles.sin().to(dtype)
    there = [KVWorkspace(shape, longest, torch.device(device)) for _ in starts]
    expected = [torch.full((layers, 2, heads, longest, size), float("nan"), dtype=dtype) for _ in starts]  # NaN behind the tokens
    for workspace, buffer, begun in zip(there, expected, starts, strict=True):
        buffer[:, :, :, :begun] = torch.randn(layers, 2, heads, begun, size, generator=generator)
        workspace.buffer.copy_(buffer)
    found = split_attention.attend(
        qkv.flatten(1).to(device),
        *(None if weight is None else weight.to(device) for weight in norms),
        split_attention.Heads(heads, group, size, size**-0.5, epsilon, *(table.to(device) for table in tables)),
        split_attention.Places(
            torch.tensor([workspace.buffer.data_ptr() for workspace in there], device=device),
            torch.tensor(starts, device=device),
            2,
            tokens,
            longest,
        ),
        layer,
    )
    for place, begun in enumerate(starts):
        rows = slice(place * tokens, (place + 1) * tokens)
        turned, values = torch.split(qkv[rows].transpose(0, 1), [sum(kinds[:2]), kinds[2]])
        if normed:
            weights = (weight[None] for weight in norms if weight is not None)
            turned = torch.cat(
                [
                    F.rms_norm(part, (size,), None, epsilon) * own
                    for part, own in zip(turned.split(kinds[:2]), weights, strict=True)
                ]
            )
        turned = rotate(turned, *(table[begun : begun + tokens] for table in tables))
        queries, keys = turned.split(kinds[:2])
        written = slice(begun, begun + tokens)
        expected[place][layer, 0, :, written], expected[place][layer, 1, :, written] = keys, values
        exact = TOLERANCE[dtype] if normed or ON_GPU else 0.0  # a GPU fuses products with sums
        torch.testing.assert_close(there[place].buffer.cpu(), expected[place], rtol=exact, atol=exact, equal_nan=True)
        right = reference(queries.transpose(0, 1).reshape(tokens, heads, group, size), expected[place], layer, begun)
        error = (found[rows].cpu().double() - right.flatten(1)).abs().max() / right.abs().max()
        assert error < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_sums_are_normed_and_gated_as_torch_does(fused: ModuleType, dtype: torch.dtype) -> None:
    device = "cuda:0" if ON_GPU else "cpu"
    x, added, weight, wide = (torch.randn(size).to(device, dtype) for size in ((3, 576), (3, 576), (576,), (3, 2 * 1536)))
    total = torch.add(x, added, alpha=0.25)
    for part, begun in ((added, total), (None, x.clone())):
        given = x.clone()
        normed = fused.add_and_norm(given, part, weight, 0.25, 1e-5)
        torch.testing.assert_close(given, begun)
        torch.testing.assert_close(normed, F.rms_norm(begun, (576,), weight, 1e-5))
    gate, up = wide.chunk(2, dim=-1)
    torch.testing.assert_close(fused.gate(wide), F.silu(gate) * up)


def test_parts_are_as_many_as_fill_a_gpu_and_have_keys(split_attention: ModuleType) -> None:
    found = {shape: split_attention._splits(*shape) for shape in ((2, 4096), (3, 4096), (8, 32768), (2, 128), (1, 64))}
    assert found == {(2, 4096): 64, (3, 4096): 32, (8, 32768): 16, (2, 128): 2, (1, 64): 1}


@pytest.mark.parametrize(("size", "can"), [(64, True), (16, True), (8, False), (80, False)])
def test_heads_of_other_sizes_are_masked(fused: ModuleType, size: int, *, can: bool) -> None:
    architecture = RandomModel(SMALL).architecture
    assert fused.is_supported(replace(architecture, head_dim=size), torch.bfloat16) is can


def as_operators(fused: ModuleType, library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each call of kernels one operator, as which a simulated device sees it."""

    def attend(
        qkv: Tensor, addresses: Tensor, starts: Tensor, cosines: Tensor, sines: Tensor, numbers: Sequence[float]
    ) -> Tensor:
        kv_heads, group, size, sequences, tokens, most, layer, scale = numbers
        heads = fused.Heads(int(kv_heads), int(group), int(size), scale, 0.0, cosines, sines)
        places = fused.Places(addresses, starts, int(sequences), int(tokens), int(most))
        return kernels(qkv, None, None, heads, places, int(layer))

    def call(qkv: Tensor, q_norm: None, k_norm: None, heads: Any, places: Any, layer: int) -> Tensor:
        assert q_norm is None
        assert k_norm is None
        numbers = [
            heads.kv_heads,
            heads.group,
            heads.size,
            places.sequences,
            places.tokens,
            places.max_tokens,
            layer,
            heads.scale,
        ]
        tensors = qkv, places.addresses, places.starts, heads.cosines, heads.sines
        return cast("Tensor", torch.ops.midfill_test.attend(*tensors, [float(each) for each in numbers]))

    kernels = fused.attend
    for name, function, schema in (
        (
            "attend",
            attend,
            "(Tensor qkv, Tensor addresses, Tensor starts, Tensor cosines, Tensor sines, float[] numbers) -> Tensor",
        ),
        (
            "add_and_norm",
            fused.add_and_norm,
            "(Tensor(a!) x, Tensor? added, Tensor weight, float scale, float epsilon) -> Tensor",
        ),
        ("gate", fused.gate, "(Tensor gate_up) -> Tensor"),
    ):
        library.define(f"{name}{schema}")
        library.impl(name, function, "CPU")
        monkeypatch.setattr(fused, name, call if name == "attend" else getattr(torch.ops.midfill_test, name))


def test_one_graph_per_bucket_serves_every_workspace(
    fused: ModuleType, simulated: SimulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.library._scoped_library("midfill_test", "DEF") as library:
        as_operators(fused, library, monkeypatch)
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
    caplog.set_level(logging.INFO)
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    monkeypatch.delitem(sys.modules, FUSED, raising=False)
    model = RandomModel(SMALL)
    decoder = Decoder(model.architecture, {}, moved(model.weights, "cuda:0"), 64)
    assert not GraphedDecoder(decoder, split_attention=True).splits_attention
    assert "attention is not split over keys" in caplog.text


def test_where_the_kernels_fail_graphs_are_masked(
    fused: ModuleType, simulated: SimulatedCuda, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("the kernel cannot be compiled")

    monkeypatch.setattr(fused, "add_and_norm", fail)
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
