"""No GPU is needed: torchao's tensors multiply on a CPU too, and tensors without values stand in for CUDA's."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torchao.quantization import Float8Tensor, Int8Tensor

from inference.backends.llama.decoder import Decoder
from inference.backends.llama.quantized import MATRICES, quantized
from inference.backends.llama.weights import DecoderWeights
from inference.backends.model import Chunk
from protocol.errors import BadInput
from protocol.settings import Weights
from tests.inference.backends.cpu.models import POSITIONS, RandomModel, Shape, mapped

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
TYPES = {"int8": Int8Tensor, "fp8": Float8Tensor}
SHAPES = [
    Shape(vocabulary=144),
    Shape(vocabulary=144, kv_heads=1, group=4, biases=True, qk_norm=True),
    Shape(vocabulary=144, kv_heads=4, group=1, tied=True),
]
both = pytest.mark.parametrize("scheme", ["int8", "fp8"])
shapes = pytest.mark.parametrize("shape", SHAPES)


def dequantized(tensor: Tensor) -> Tensor:
    return tensor.dequantize() if isinstance(tensor, Int8Tensor | Float8Tensor) else tensor


def logits(model: RandomModel, weights: DecoderWeights) -> Tensor:
    """[40, vocabulary], of which the last 10 were computed after the others."""
    decoder = Decoder(model.architecture, {}, weights, POSITIONS)
    workspace, token_ids = decoder.new_workspace(), model.token_ids(40)
    hidden = [decoder.hidden([Chunk(token_ids[:30], 0, workspace, 0)])]
    hidden += [decoder.hidden([Chunk([token_ids[place]], place, workspace, 0)]) for place in range(30, 40)]
    return decoder.logits(torch.cat(hidden))


def distance(found: Tensor, expected: Tensor) -> float:
    """The error, in shares of what there is."""
    return float((found - expected).norm() / expected.norm())


# What is left in int8 is the order of sums. In fp8 the other factor is rounded too: to 3 bits behind the point, and so
# by 2 to 3 % of each value.
@pytest.mark.parametrize(("scheme", "bound"), [("int8", 1e-5), ("fp8", 0.08)])
@shapes
def test_products_are_those_of_the_rounded_weights(shape: Shape, scheme: Weights, bound: float) -> None:
    model = RandomModel(shape)
    rounded = quantized(model.weights, scheme, CPU)
    expected = logits(model, mapped(rounded, dequantized))
    assert distance(logits(model, rounded), expected) < bound
    assert distance(logits(model, model.weights), expected) > 1e-3  # they are rounded
    for layer in rounded.layers:
        layer.down.scale.mul_(1.5)
    assert distance(logits(model, rounded), expected) > bound


@pytest.mark.parametrize(("scheme", "bound"), [("int8", 0.02), ("fp8", 0.12)])
@shapes
def test_the_rounded_model_is_near_the_whole_one(shape: Shape, scheme: Weights, bound: float) -> None:
    model = RandomModel(shape, dtype=torch.bfloat16)
    found = logits(model, quantized(model.weights, scheme, CPU))
    assert distance(found, logits(model, model.weights)) < bound


@both
@shapes
def test_only_matrices_are_rounded(shape: Shape, scheme: Weights) -> None:
    whole = RandomModel(shape).weights
    rounded = quantized(whole, scheme, CPU)
    assert rounded.embedding is whole.embedding
    assert rounded.final_norm is whole.final_norm
    for ours, theirs in zip(rounded.layers, whole.layers, strict=True):
        for field in fields(theirs):
            name, tensor = field.name, getattr(ours, field.name)
            assert isinstance(tensor, TYPES[scheme]) if name in MATRICES else tensor is getattr(theirs, name)
    if shape.tied and scheme == "int8":
        assert rounded.head is rounded.embedding
    else:
        assert isinstance(rounded.head, TYPES[scheme])
        assert rounded.head.qdata.element_size() == 1


def test_fp8_leaves_what_torch_does_not_multiply() -> None:
    model = RandomModel(Shape(vocabulary=130))
    assert quantized(model.weights, "fp8", CPU).head is model.weights.head
    assert isinstance(quantized(model.weights, "int8", CPU).head, Int8Tensor)


@both
def test_rows_of_zeros_stay_zeros(scheme: Weights) -> None:
    model = RandomModel(Shape(vocabulary=144))
    model.weights.head[7] = 0
    model.weights.layers[0].down[3] = 0
    model.weights.embedding[model.token_ids(1)] = 0
    found = logits(model, quantized(model.weights, scheme, CPU))
    assert not found.isnan().any()
    assert not found[:, 7].any()


class Devices(TorchDispatchMode):
    """Where the results of operators are."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.found |= {leaf.device.type for leaf in tree_leaves(result) if isinstance(leaf, Tensor)}
        return result


@both
@shapes
@pytest.mark.parametrize("tokens", [1, 2, 32])
def test_on_cuda_no_product_waits_for_a_value(shape: Shape, scheme: Weights, tokens: int) -> None:
    """As a CUDA graph wants it. Tensors without values refuse operators that need one, and check CUDA's shapes."""
    model = RandomModel(shape, dtype=torch.bfloat16)
    with FakeTensorMode() as fake:
        weights = quantized(mapped(model.weights, fake.from_tensor), scheme, CUDA)
        for layer in weights.layers:
            for matrix, bias in (
                (layer.qkv, layer.qkv_bias),
                (layer.attention_out, layer.attention_out_bias),
                (layer.gate_up, layer.gate_up_bias),
                (layer.down, layer.down_bias),
                (weights.head, None),
            ):
                rows, columns = matrix.shape
                x = torch.empty(tokens, columns, dtype=torch.bfloat16, device=CUDA)
                with Devices() as devices:
                    y = F.linear(x, matrix, bias)
                assert devices.found == {"cuda"}
                assert (y.shape, y.dtype) == ((tokens, rows), torch.bfloat16)


@both
def test_a_torchao_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch, scheme: Weights) -> None:
    monkeypatch.setitem(sys.modules, "torchao.quantization", None)
    with pytest.raises(BadInput, match=rf"{scheme} weights .* torchao>=0.18, which cannot be imported"):
        quantized(None, scheme, CUDA)  # type: ignore[arg-type]
