"""Weights of 4 bits on a GPU: a simulated one computes torch's product of them from its documentation."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import Tensor

from inference.backends.llama.decoder import Decoder
from inference.backends.llama.graphs import GraphedDecoder
from inference.backends.llama.int4 import Int4Matrix, int4_weights
from inference.backends.llama.quantized import MATRICES
from inference.backends.model import Chunk
from inference.checkpoints.checkpoint import find_checkpoint
from inference.checkpoints.quantization import quantize
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from inference.loading.placement import Machine, plan_load
from protocol.messages import CompletionRequest, Prompt, StopRule
from tests.inference.backends.cpu.models import POSITIONS, RandomModel, Shape, mapped
from tests.inference.simulated_cuda import SimulatedCuda
from tests.inference.tiny import write_checkpoint
from tests.inference.tiny_gguf import write_gguf

CUDA = torch.device("cuda", 0)
SHAPES = [
    Shape(hidden=64, intermediate=96, head_dim=16),
    Shape(hidden=64, intermediate=128, head_dim=16, kv_heads=1, group=4, biases=True, tied=True),
]


def kept(matrix: Tensor) -> Tensor:
    """The values that 4 bits leave of a matrix, whose columns are many enough for them."""
    return quantize(matrix, "int4").dequantized()


@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_the_rounded_weights(simulated: SimulatedCuda, shape: Shape) -> None:
    model = RandomModel(shape, dtype=torch.bfloat16)
    weights = int4_weights(model.weights, CUDA, tied=shape.tied)
    assert all(isinstance(getattr(layer, name), Int4Matrix) for layer in weights.layers for name in MATRICES)
    rounded = mapped(model.weights, lambda tensor: tensor.float())
    for layer in rounded.layers:
        for name in MATRICES:
            getattr(layer, name).copy_(kept(getattr(layer, name)))
    decoders = [
        Decoder(model.architecture, {}, weights, POSITIONS),
        *(Decoder(model.architecture, {}, each, POSITIONS) for each in (rounded, mapped(model.weights, torch.Tensor.float))),
    ]
    logits = list[Tensor]()
    for decoder in decoders:
        workspace, token_ids = decoder.new_workspace(), model.token_ids(40)
        hidden = [decoder.hidden([Chunk(token_ids[:30], 0, workspace)]), decoder.hidden([Chunk(token_ids[30:], 30, workspace)])]
        logits.append(decoder.logits(torch.cat(hidden)).cpu())
    found, expected, whole = logits
    assert (found - expected).norm() < 0.02 * expected.norm()  # of bfloat16
    assert (whole - expected).norm() > 0.05 * expected.norm()


def test_what_does_not_suit_the_kernel_keeps_16_bits(simulated: SimulatedCuda) -> None:
    model = RandomModel(Shape(hidden=32, intermediate=36, head_dim=16), dtype=torch.bfloat16)
    weights = int4_weights(model.weights, CUDA, tied=False)
    for layer in weights.layers:
        packed = {field.name for field in fields(layer) if isinstance(getattr(layer, field.name), Int4Matrix)}
        assert packed == {"qkv", "attention_out", "gate_up"}  # `down` has 36 columns
    assert torch.equal(weights.layers[0].down.cpu(), model.weights.layers[0].down)
    assert torch.equal(weights.embedding.cpu(), model.weights.embedding)
    assert torch.equal(weights.head.cpu(), model.weights.head)


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path / "model", hidden_size=64, intermediate_size=128)
    return write_gguf(tmp_path / "tiny.gguf", folder, "Q4_0", ffn_up="Q4_1", ffn_down="Q8_0")


def test_a_file_of_4_bits_keeps_its_numbers_and_is_replayed(gguf: Path, simulated: SimulatedCuda) -> None:
    options = EngineOptions(str(gguf), device="cuda", weights="int4", threads=1, context_tokens=256)
    plan = plan_load(options, find_checkpoint(str(gguf)), Machine("cuda:0", simulated.free(), simulated.capability))
    engine = load_engine(options)
    graphed = engine._model
    assert isinstance(graphed, GraphedDecoder)
    assert graphed.weights_bytes == pytest.approx(plan.memory.weights, rel=0.01)
    layer = graphed.plain.weights.layers[0]
    assert isinstance(layer.gate_up, Int4Matrix)
    plain = load_engine(EngineOptions(str(gguf), device="cpu", kernel=False, dtype="float32", threads=1))
    gate_up = plain._model.weights.layers[0].gate_up  # type: ignore[attr-defined]
    columns = torch.eye(64, dtype=torch.bfloat16, device=CUDA)
    found = torch.nn.functional.linear(columns, layer.gate_up).cpu().float().T
    assert (found - gate_up).abs().max() < 2**-7 * gate_up.abs().max()  # of bfloat16; a step of 4 bits is 2**-3
    replays = simulated.replays
    request = CompletionRequest("a.py", Prompt("def size_of(path):\n", "\n", "    return"), 4, StopRule(indent=0))
    assert engine.complete(request).usage.generated_tokens
    assert simulated.replays > replays
