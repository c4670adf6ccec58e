from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from inference.backends.cpu.library import levels, unavailable_reason
from inference.backends.cpu.model import KernelModel, load_kernel_model, unusable_reason
from inference.backends.cpu.packing import WeightType
from inference.backends.llama.decoder import Decoder
from inference.backends.model import SHORT_TOKENS, Choice, Chunk
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from kv_store.interface import Workspace
from protocol.messages import CompletionRequest, Prompt
from tests.inference.backends.cpu.models import POSITIONS, RandomModel, Shape, buffer_of, forward
from tests.inference.tiny import write_checkpoint

compiled = pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
SOURCE = Path(__file__).read_text(encoding="utf-8")


def decoder_of(model: RandomModel) -> Decoder:
    return Decoder(model.architecture, {}, model.weights, POSITIONS)


def kernel_model_of(model: RandomModel, threads: int = 1, weight_type: WeightType | None = None) -> KernelModel:
    dtype = model.weights.embedding.dtype
    stored = weight_type or ("bfloat16" if dtype == torch.bfloat16 else "float32")
    return load_kernel_model(model.architecture, {}, model.weights, stored, str(dtype).removeprefix("torch."), POSITIONS, threads)


def choose(
    model: Decoder | KernelModel, token_ids: list[int], start: int, workspace: Workspace, wanted: int = 1
) -> tuple[Choice, ...]:
    return model.forward([Chunk(token_ids, start, workspace, wanted)])[0]


@compiled
def test_short_and_long_chunks_share_a_workspace() -> None:
    model = RandomModel(Shape())
    alone, helped = decoder_of(model), kernel_model_of(model)
    token_ids = model.token_ids(100)
    workspaces = alone.new_workspace(), helped.new_workspace()
    start = 0
    for count in (40, 1, SHORT_TOKENS, SHORT_TOKENS + 1, 3):
        theirs, ours = (
            choose(decoder, token_ids[start : start + count], start, workspace)[0]
            for decoder, workspace in zip((alone, helped), workspaces, strict=True)
        )
        assert ours.token_id == theirs.token_id
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
        start += count
    torch.testing.assert_close(workspaces[0].buffer, buffer_of(workspaces[1]), atol=1e-4, rtol=1e-4)


@compiled
@pytest.mark.parametrize(("count", "wanted"), [(9, 8), (40, 8), (40, 15), (70, 40)])
def test_forced_choices_are_those_of_single_tokens(count: int, wanted: int) -> None:
    """However the call is cut into pieces."""
    model = RandomModel(Shape())
    kernel = kernel_model_of(model)
    token_ids = model.token_ids(count + 1)
    forced = token_ids[count - wanted + 1 :]
    (found,) = kernel.forward([Chunk(token_ids[:count], 0, kernel.new_workspace(), wanted, forced=forced)])
    one_by_one = kernel.new_workspace()
    logits = [
        forward(kernel._kernel, [Chunk([token_id], start, one_by_one, 1)])[0][0]
        for start, token_id in enumerate(token_ids[:count])
    ]
    logprobs = torch.stack(logits[-wanted:]).log_softmax(-1)
    assert [choice.token_id for choice in found] == forced
    expected = logprobs.gather(-1, torch.tensor(forced)[:, None])[:, 0].tolist()
    assert [choice.logprob for choice in found] == pytest.approx(expected, abs=1e-5)


@compiled
@pytest.mark.parametrize("weight_type", [None, "int8", "int4", "centred_int4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_how_a_prompt_is_cut_into_chunks_changes_no_bit(dtype: torch.dtype, weight_type: WeightType | None) -> None:
    if levels() == ("portable",):
        pytest.skip("this CPU has no vectors that the kernel knows")
    model = RandomModel(Shape(), dtype=dtype)
    token_ids = model.token_ids(200)
    helped = kernel_model_of(model, weight_type=weight_type)
    whole, pieces = helped.new_workspace(), helped.new_workspace()
    expected = choose(helped, token_ids, 0, whole, wanted=40)
    bounds = (0, 1, 18, 150, 151, 160)
    for start, stop in pairwise(bounds):
        choose(helped, token_ids[start:stop], start, pieces)
    assert choose(helped, token_ids[160:], 160, pieces, wanted=40) == expected
    assert torch.equal(buffer_of(pieces), buffer_of(whole))


@compiled
@pytest.mark.skipif(unavailable_reason() is None and levels()[-1] == "portable", reason="torch has the long chunks")
def test_weights_are_kept_once() -> None:
    model = RandomModel(Shape())
    matrix = weakref.ref(model.weights.layers[0].gate_up)
    helped = kernel_model_of(model)
    decoder = decoder_of(model)
    expected = choose(decoder, [1, 2, 3], 0, decoder.new_workspace())
    del decoder
    del model
    gc.collect()
    assert matrix() is None
    assert choose(helped, [1, 2, 3], 0, helped.new_workspace())[0].token_id == expected[0].token_id


@compiled
def test_the_text_is_that_of_torch(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, hidden_size=64, num_attention_heads=2, num_key_value_heads=1)
    options = EngineOptions(str(folder), context_tokens=512, threads=1, dtype="float32")
    helped, alone = load_engine(options), load_engine(replace(options, kernel=False))
    for cut in range(100, 300, 40):
        request = CompletionRequest("a.py", Prompt(SOURCE[:cut], SOURCE[cut : cut + 50]), max_tokens=16)
        assert helped.complete(request).text == alone.complete(request).text


@compiled
@pytest.mark.parametrize(("weight_type", "apart"), [("int8", 0.1), ("int4", 0.5), ("centred_int4", 0.7)])
def test_quantized_weights_are_another_model(weight_type: WeightType, apart: float) -> None:
    model = RandomModel(Shape())
    whole, rounded = kernel_model_of(model), kernel_model_of(model, weight_type=weight_type)
    token_ids = model.token_ids(10)
    ours, theirs = (choose(decoder, token_ids, 0, decoder.new_workspace())[0].logprob for decoder in (rounded, whole))
    assert ours != theirs
    assert ours == pytest.approx(theirs, abs=apart)


@pytest.mark.parametrize(
    ("shape", "device", "dtype", "reason"),
    [
        (Shape(head_dim=24), "cpu", "float32", "head dimension of 24"),
        (Shape(), "cpu", "float16", "float16"),
        (Shape(), "meta", "float32", "the model runs on meta"),
    ],
)
def test_the_reason_names_what_the_kernel_cannot_compute(shape: Shape, device: str, dtype: str, reason: str) -> None:
    assert reason in str(unusable_reason(shape.architecture, device, dtype))
