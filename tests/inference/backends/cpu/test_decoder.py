"""The kernel against the fallback, and its bits against themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from inference.backends.cpu.decoder import KernelDecoder, _each
from inference.backends.cpu.library import LEVELS, CLayerWeights, Level, levels
from inference.backends.cpu.packing import WeightType
from inference.backends.cpu.stored import Matrix, StoredMatrix, StoredReader
from inference.backends.layer_weights import GgufTensors, LayerWeights, StreamedWeights
from inference.backends.llama.decoder import Decoder, rotation_tables
from inference.backends.llama.weights import DecoderWeights, GgufReader, read_decoder_weights
from inference.backends.model import Chunk
from inference.checkpoints.architecture import read_architecture
from inference.checkpoints.checkpoint import open_checkpoint
from inference.checkpoints.quantized_matrix import GROUP, QuantizedMatrix
from inference.checkpoints.weights import QuantizedType
from kv_store.main_memory import KVShape
from kv_store.workspace import KVWorkspace
from protocol.errors import BadModel
from tests.inference.backends.cpu.fallback import FallbackDecoder
from tests.inference.backends.cpu.models import POSITIONS, RandomModel, Shape, forward, mapped
from tests.inference.tiny import write_checkpoint
from tests.inference.tiny_gguf import KERNEL_SHAPE, write_gguf

pytestmark = pytest.mark.usefixtures("compiled")

WEIGHT_TYPES: tuple[WeightType, ...] = get_args(WeightType)
KV_DTYPES = (torch.float32, torch.bfloat16)
# A number just between two bfloat16, or two int8, may be rounded to either: sums in another order are not the same.
TOLERANCES: dict[WeightType, float] = {"float32": 1e-5, "bfloat16": 1e-2} | dict.fromkeys(get_args(QuantizedType), 5e-2)
BF16_KV_TOLERANCE = 2e-2  # one level rounds queries and the softmax to bfloat16 as well
ODD = Shape(hidden=96, intermediate=150, kv_heads=1, group=5, vocabulary=101, biases=True, qk_norm=True)

shapes = st.builds(
    Shape,
    layers=st.integers(1, 3),
    hidden=st.sampled_from((32, 64, 96, 128, 200)),
    intermediate=st.integers(1, 300),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 8),
    head_dim=st.sampled_from((32, 64, 96, 128)),
    vocabulary=st.integers(2, 200),
    biases=st.booleans(),
    qk_norm=st.booleans(),
    tied=st.booleans(),
    scaled=st.booleans(),
)


def distance(ours: Tensor, theirs: Tensor) -> float:
    """How far two tensors are apart, root mean square, beside their size; what cancels out counts as 0.3."""
    apart, size = ours.float() - theirs.float(), theirs.float().square().mean().sqrt()
    return float(apart.square().mean().sqrt() / size.clamp(min=0.3))


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Level:
    if request.param not in levels():
        pytest.skip(f"this CPU does not run {request.param}")
    name: Level = request.param
    return name


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    shape=shapes,
    seed=st.integers(0, 1000),
    start=st.integers(0, 300),
    count=st.integers(1, 32),
    weight_type=st.sampled_from(WEIGHT_TYPES),
    stored=st.sampled_from((torch.float32, torch.bfloat16)),
    kv_dtype=st.sampled_from(KV_DTYPES),
    threads=st.integers(1, 4),
    data=st.data(),
)
def test_a_forward_is_that_of_the_fallback(
    shape: Shape,
    seed: int,
    start: int,
    count: int,
    weight_type: WeightType,
    stored: torch.dtype,
    kv_dtype: torch.dtype,
    threads: int,
    data: st.DataObject,
) -> None:
    model = RandomModel(shape, seed, stored)
    kernel = model.kernel(weight_type, threads, data.draw(st.sampled_from(levels())))
    ours, theirs = model.workspace(kv_dtype), model.workspace(kv_dtype)
    for workspace in (ours, theirs):
        model.resident(workspace, start, seed)
    token_ids = model.token_ids(count, seed)
    wanted = data.draw(st.integers(0, count))

    logits = forward(kernel, [Chunk(token_ids, start, ours, wanted)])[0]
    expected = forward(model.fallback(weight_type), [Chunk(token_ids, start, theirs, wanted)])[0]

    tolerance = max(TOLERANCES[weight_type], BF16_KV_TOLERANCE if kv_dtype == torch.bfloat16 else 0.0)
    assert logits.shape == (wanted, shape.vocabulary)
    assert wanted == 0 or distance(logits, expected) < tolerance
    assert distance(ours.buffer, theirs.buffer) < tolerance
    assert torch.equal(ours.buffer[:, :, :, :start], theirs.buffer[:, :, :, :start])
    assert not ours.buffer[:, :, :, start + count :].any()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    shape=shapes,
    seed=st.integers(0, 1000),
    sequences=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 8), st.integers(0, 8)), min_size=2, max_size=4),
    weight_type=st.sampled_from(WEIGHT_TYPES),
    kv_dtype=st.sampled_from(KV_DTYPES),
    threads=st.integers(1, 3),
    data=st.data(),
)
def test_sequences_that_share_a_forward_get_the_bits_of_their_own(
    shape: Shape,
    seed: int,
    sequences: list[tuple[int, int, int]],
    weight_type: WeightType,
    kv_dtype: torch.dtype,
    threads: int,
    data: st.DataObject,
) -> None:
    model = RandomModel(shape, seed)
    kernel = model.kernel(weight_type, threads, data.draw(st.sampled_from(levels())))

    def chunks() -> list[Chunk]:
        """One of each sequence, on a workspace of a size of its own."""
        made = []
        for number, (start, count, wanted) in enumerate(sequences):
            workspace = model.workspace(kv_dtype, start + count + number)
            model.resident(workspace, start, seed + number)
            made.append(Chunk(model.token_ids(count, seed + number), start, workspace, min(count, wanted)))
        return made

    shared, separate, theirs = chunks(), chunks(), chunks()
    logits = forward(kernel, shared)
    alone = [forward(kernel, [chunk])[0] for chunk in separate]
    assert all(map(torch.equal, logits, alone))
    assert all(torch.equal(a.workspace.buffer, b.workspace.buffer) for a, b in zip(shared, separate, strict=True))
    assert kernel.choices(shared) == [kernel.choices([chunk])[0] for chunk in separate]
    tolerance = max(TOLERANCES[weight_type], BF16_KV_TOLERANCE if kv_dtype == torch.bfloat16 else 0.0)
    expected = forward(model.fallback(weight_type), theirs)
    assert all(not len(a) or distance(a, b) < tolerance for a, b in zip(logits, expected, strict=True))


def test_a_chunk_chooses_among_the_tokens_that_it_is_allowed() -> None:
    model = RandomModel(ODD)
    free, bound = (Chunk(model.token_ids(3), 0, model.workspace(), 1) for _ in range(2))
    bound = replace(bound, allowed=np.array([7, 9, 30]))
    for decoder in (model.kernel(), model.fallback()):
        (logits,) = forward(decoder, [bound])
        (first,), (second,) = decoder.choices([free, bound])
        assert first.token_id == int(logits.argmax())
        assert second.token_id == (7, 9, 30)[int(logits[0, [7, 9, 30]].argmax())]
        assert second.logprob == pytest.approx(float(logits[0, [7, 9, 30]].log_softmax(0).max()), abs=1e-5)


def test_it_goes_on_where_torch_has_prefilled(level: Level) -> None:
    model = RandomModel(ODD)
    workspace = model.workspace()
    decoder = Decoder(model.architecture, {}, model.weights, POSITIONS)
    token_ids = model.token_ids(200)
    expected = decoder.logits(decoder.hidden([Chunk(token_ids, 0, workspace)]))[150:]

    workspace.buffer[:, :, :, 150:] = 0
    kernel = model.kernel(level=level)
    logits = torch.cat(
        [
            logits
            for start in range(150, 200, 10)
            for logits in forward(kernel, [Chunk(token_ids[start : start + 10], start, workspace, 10)])
        ]
    )
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("weight_type", WEIGHT_TYPES)
@pytest.mark.parametrize("kv_dtype", KV_DTYPES)
def test_bits_depend_on_neither_threads_nor_tokens_in_a_call(
    level: Level, weight_type: WeightType, kv_dtype: torch.dtype
) -> None:
    model = RandomModel(ODD)
    token_ids = model.token_ids(100)
    expected, one_by_one = run(model.kernel(weight_type, 1, level), model.workspace(kv_dtype), token_ids, 1)
    for threads, step in ((2, 7), (3, 32), (1, 30)):
        logits, workspace = run(model.kernel(weight_type, threads, level), model.workspace(kv_dtype), token_ids, step)
        assert torch.equal(logits, expected)
        assert torch.equal(workspace.buffer, one_by_one.buffer)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_float32_weights_that_fit_16_bits_give_the_same_bits(level: Level, dtype: torch.dtype) -> None:
    narrow, wide = (RandomModel(ODD, dtype=dtype) for _ in range(2))
    wide.weights = mapped(wide.weights, Tensor.float)
    for model in (narrow, wide):  # the MLP's first number is zero, so it does not matter what it is multiplied with
        model.weights.layers[0].gate_up[0] = 0
        model.weights.layers[0].gate_up_bias[0] = 0  # type: ignore[index]
    wide.weights.layers[0].down[0, 0] = 1 + 2.0**-20
    token_ids = narrow.token_ids(60)
    ours, theirs = (run(model.kernel(level=level), model.workspace(), token_ids, 13)[0] for model in (narrow, wide))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("quantized_type", ["int5", "int6"])
def test_numbers_of_5_and_6_bits_are_multiplied_as_they_are(level: Level, quantized_type: QuantizedType) -> None:
    """In matrices, in the embedding and in the head."""
    model = RandomModel(replace(ODD, hidden=64, intermediate=160))

    def matrix(weight: Tensor) -> Tensor:
        return quantized_as(weight, quantized_type)  # type: ignore[return-value] # the fallback takes either

    def layer(of: LayerWeights) -> LayerWeights:
        matrices = {name: matrix(getattr(of, name)) for name in ("qkv", "attention_out", "gate_up", "down")}
        return replace(of, **matrices)

    weights = model.weights
    model.weights = DecoderWeights(
        matrix(weights.embedding), tuple(map(layer, weights.layers)), weights.final_norm, matrix(weights.head)
    )
    token_ids = model.token_ids(21)
    ours, _ = run(model.kernel(level=level), model.workspace(), token_ids, 6)
    (theirs,) = forward(model.fallback("int4"), [Chunk(token_ids, 0, model.workspace(), len(token_ids))])
    assert distance(ours, theirs) < TOLERANCES["int4"]


def quantized_as(weight: Tensor, quantized_type: QuantizedType) -> QuantizedMatrix:
    if quantized_type == "int6":
        groups = weight.view(len(weight), -1, GROUP // 2)
        scales = (groups.abs().amax(2) / 31).half()
        numbers = (groups / scales.float().unsqueeze(2)).round() + 32
        return QuantizedMatrix("int6", numbers.clamp(0, 63).to(torch.uint8).flatten(1), scales, None)
    groups = weight.view(len(weight), -1, GROUP)
    minima = groups.amin(2).half()
    scales = ((groups.amax(2) - minima.float()) / 31).half()
    numbers = ((groups - minima.float().unsqueeze(2)) / scales.float().unsqueeze(2)).round()
    return QuantizedMatrix("int5", numbers.clamp(0, 31).to(torch.uint8).flatten(1), scales, minima)


def test_queries_and_values_of_different_types_keep_them(tmp_path: Path) -> None:
    """As in most GGUF files: a matrix continues in another one."""
    folder = write_checkpoint(tmp_path / "model", **KERNEL_SHAPE, attention_bias=True)
    checkpoint = open_checkpoint(write_gguf(tmp_path / "tiny.gguf", folder, "Q5_1", attn_v="Q8_0"), "tiny")
    shape = read_architecture(checkpoint.config, "tiny")
    reader = StoredReader(GgufTensors(checkpoint.weights(), shape))
    qkv = next(iter(StreamedWeights(shape, reader, lambda _: None).layers)).qkv
    assert isinstance(qkv, StoredMatrix)
    assert [part.type for part in qkv.by_type()] == ["int5", "int8"]
    tables = rotation_tables(shape, checkpoint.config, POSITIONS, torch.float32, torch.device("cpu"))
    kernel = KernelDecoder(shape, StreamedWeights(shape, reader, lambda _: None), tables, "float32", 2)
    exact = read_decoder_weights(
        shape, GgufReader(checkpoint.weights(), shape, torch.float32, torch.device("cpu")), lambda _: None
    )
    token_ids = [number % shape.vocabulary for number in range(0, 90, 3)]
    kv = KVShape(shape.layers, shape.kv_heads, shape.head_dim, "float32")
    ours, theirs = KVWorkspace(kv, POSITIONS), KVWorkspace(kv, POSITIONS)
    (logits,) = forward(kernel, [Chunk(token_ids, 0, ours, 1)])
    (expected,) = forward(FallbackDecoder(shape, exact, tables, "float32"), [Chunk(token_ids, 0, theirs, 1)])
    assert distance(logits, expected) < 0.1
    assert distance(ours.buffer[1], theirs.buffer[1]) < 0.1


def run(kernel: KernelDecoder, workspace: KVWorkspace, token_ids: list[int], step: int) -> tuple[Tensor, KVWorkspace]:
    """Logits of all tokens, `step` of them at a time."""
    starts = range(0, len(token_ids), step)
    pieces = [(token_ids[start : start + step], start) for start in starts]
    logits = [forward(kernel, [Chunk(piece, start, workspace, len(piece))])[0] for piece, start in pieces]
    return torch.cat(logits), workspace


@pytest.mark.parametrize("vocabulary", [1, 5, 33, 1000])
def test_the_choices_are_the_most_probable_tokens(level: Level, vocabulary: int) -> None:
    model = RandomModel(Shape(vocabulary=vocabulary))
    token_ids = model.token_ids(9)
    (ours,) = model.kernel(level=level).choices([Chunk(token_ids, 0, model.workspace(), 4)])
    (theirs,) = model.fallback().choices([Chunk(token_ids, 0, model.workspace(), 4)])
    assert [choice.token_id for choice in ours] == [choice.token_id for choice in theirs]
    assert [choice.logprob for choice in ours] == pytest.approx([choice.logprob for choice in theirs], abs=1e-5)


def test_of_equals_the_first_is_chosen(level: Level) -> None:
    model = RandomModel(Shape())
    model.weights.head.zero_()
    ((choice,),) = model.kernel(level=level).choices([Chunk([1, 2], 0, model.workspace(), 1)])
    assert choice.token_id == 0


def test_the_workspace_may_end_anywhere(level: Level) -> None:
    model = RandomModel(ODD)
    small, large = model.workspace(max_tokens=77), model.workspace()
    model.resident(large, 70)
    small.buffer[:, :, :, :70] = large.buffer[:, :, :, :70]
    kernel = model.kernel(level=level)
    token_ids = model.token_ids(7)
    (ours,), (theirs,) = (forward(kernel, [Chunk(token_ids, 70, workspace, 1)]) for workspace in (small, large))
    assert torch.equal(ours, theirs)


def test_a_nan_is_not_lost() -> None:
    model = RandomModel(ODD)
    workspace = model.workspace()
    workspace.buffer[0, 1, 0, 3, 5] = float("nan")
    for weight_type in ("float32", "bfloat16"):
        (logits,) = forward(model.kernel(weight_type), [Chunk(model.token_ids(1), 10, workspace, 1)])
        assert logits.isnan().any()


def test_an_error_ends_the_packing_of_all_layers() -> None:
    read: list[int] = []

    def layers() -> Iterator[LayerWeights[Tensor]]:
        for number in range(1000):
            read.append(number)
            yield cast("LayerWeights[Tensor]", number)

    def pack(layer: LayerWeights[Matrix]) -> CLayerWeights:
        raise BadModel(f"layer {layer}")

    with pytest.raises(BadModel, match=r"layer [01]"):
        _each(pack, layers(), 2)
    assert len(read) <= 2
