from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
import torch

from inference.backends.chunk import SHORT_TOKENS, Chunk
from inference.backends.cpu.library import levels, unavailable_reason
from inference.backends.cpu.model import KernelModel, with_kernel
from inference.backends.llama.decoder import Decoder
from inference.backends.model import Choice
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from kv_store.workspace import KVWorkspace
from protocol.errors import BadInput
from protocol.messages import CompletionRequest, Prompt
from tests.inference.backends.cpu.models import POSITIONS, RandomModel, Shape
from tests.inference.tiny import write_checkpoint

compiled = pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
SOURCE = Path(__file__).read_text(encoding="utf-8")


def decoder_of(model: RandomModel) -> Decoder:
    return Decoder(model.architecture, {}, model.weights, POSITIONS)


def choose(
    model: Decoder | KernelModel, token_ids: list[int], start: int, workspace: KVWorkspace, wanted: int = 1
) -> tuple[Choice, ...]:
    return model.forward([Chunk(token_ids, start, workspace, wanted)])[0]


@compiled
def test_short_and_long_chunks_share_a_workspace() -> None:
    model = RandomModel(Shape())
    alone, helped = decoder_of(model), with_kernel(decoder_of(model), {}, model.weights, "auto", 2)
    assert isinstance(helped, KernelModel)
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
    torch.testing.assert_close(workspaces[0].buffer, workspaces[1].buffer, atol=1e-4, rtol=1e-4)


@compiled
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_who_shares_a_forward_changes_no_bit(dtype: torch.dtype) -> None:
    model = RandomModel(Shape(), dtype=dtype)
    helped = with_kernel(decoder_of(model), {}, model.weights, "auto", 2)
    sequences = [model.token_ids(60, seed) for seed in range(5)]
    together, alone = ([helped.new_workspace() for _ in sequences] for _ in range(2))
    for start, stop in ((0, 41), (41, 42), (42, 45), (45, 60)):
        calls = [
            [
                Chunk(token_ids[start:stop], start, workspace, wanted=1)
                for token_ids, workspace in zip(sequences, on, strict=True)
            ]
            for on in (together, alone)
        ]
        assert helped.forward(calls[0]) == [helped.forward([chunk])[0] for chunk in calls[1]]
    for ours, theirs in zip(together, alone, strict=True):
        assert torch.equal(ours.buffer, theirs.buffer)


@compiled
@pytest.mark.parametrize("mode", ["auto", "int8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_how_a_prompt_is_cut_into_chunks_changes_no_bit(dtype: torch.dtype, mode: Literal["auto", "int8"]) -> None:
    if levels() == ("portable",):
        pytest.skip("this CPU has no vectors that the kernel knows")
    model = RandomModel(Shape(), dtype=dtype)
    token_ids = model.token_ids(200)
    helped = with_kernel(decoder_of(model), {}, model.weights, mode, 2)
    whole, pieces = helped.new_workspace(), helped.new_workspace()
    expected = choose(helped, token_ids, 0, whole, wanted=40)
    bounds = (0, 1, 18, 150, 151, 160)
    for start, stop in pairwise(bounds):
        choose(helped, token_ids[start:stop], start, pieces)
    assert choose(helped, token_ids[160:], 160, pieces, wanted=40) == expected
    assert torch.equal(pieces.buffer, whole.buffer)


@compiled
def test_several_choices_are_those_one_by_one() -> None:
    model = RandomModel(Shape())
    helped = with_kernel(decoder_of(model), {}, model.weights, "auto", 2)
    token_ids = model.token_ids(50)
    together, alone = helped.new_workspace(), helped.new_workspace()
    for workspace in (together, alone):
        choose(helped, token_ids[:40], 0, workspace)
    one_by_one = [choose(helped, [token_ids[start]], start, alone)[0] for start in range(40, 50)]
    assert list(choose(helped, token_ids[40:], 40, together, wanted=10)) == one_by_one


@compiled
@pytest.mark.skipif(unavailable_reason() is None and levels()[-1] == "portable", reason="torch has the long chunks")
def test_weights_are_kept_once() -> None:
    model = RandomModel(Shape())
    matrix = weakref.ref(model.weights.layers[0].gate_up)
    helped = with_kernel(decoder_of(model), {}, model.weights, "auto", 1)
    expected = choose(decoder_of(model), [1, 2, 3], 0, helped.new_workspace())
    del model
    gc.collect()
    assert matrix() is None
    assert choose(helped, [1, 2, 3], 0, helped.new_workspace())[0].token_id == expected[0].token_id


@compiled
def test_the_text_is_that_of_torch(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, hidden_size=64, num_attention_heads=2, num_key_value_heads=1)
    options = EngineOptions(str(folder), context_tokens=512, threads=2, dtype="float32")
    helped, alone = load_engine(options), load_engine(replace(options, kernel=False))
    for cut in range(100, 300, 10):
        request = CompletionRequest("a.py", Prompt(SOURCE[:cut], SOURCE[cut : cut + 50]), max_tokens=16)
        assert helped.complete(request).text == alone.complete(request).text


@compiled
def test_int8_weights_are_another_model() -> None:
    model = RandomModel(Shape())
    whole, rounded = (with_kernel(decoder_of(model), {}, model.weights, mode, 2) for mode in ("auto", "int8"))
    token_ids = model.token_ids(10)
    ours, theirs = (choose(decoder, token_ids, 0, decoder.new_workspace())[0].logprob for decoder in (rounded, whole))
    assert ours != theirs
    assert ours == pytest.approx(theirs, abs=0.1)


@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [(Shape(head_dim=24), torch.float32, "head dimension of 24"), (Shape(), torch.float16, "float16")],
)
def test_where_there_is_no_kernel_torch_does_all(shape: Shape, dtype: torch.dtype, reason: str) -> None:
    model = RandomModel(shape, dtype=dtype)
    decoder = decoder_of(model)
    assert with_kernel(decoder, {}, model.weights, "auto", 2) is decoder
    with pytest.raises(BadInput, match=f"int8 weights need the CPU kernel: .*{reason}"):
        with_kernel(decoder, {}, model.weights, "int8", 2)
