from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from inference.decoder import Decoder
from inference.kernel import unavailable_reason
from inference.loading import EngineOptions, load_engine
from inference.short_forwards import SHORT_TOKENS, ShortForwards, with_kernel
from protocol.errors import BadInput
from protocol.messages import CompletionRequest, Prompt
from tests.inference.kernel.models import RandomModel, Shape
from tests.inference.tiny import write_checkpoint

compiled = pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
SOURCE = Path(__file__).read_text(encoding="utf-8")


def decoder_of(model: RandomModel, dtype: torch.dtype = torch.float32) -> Decoder:
    return Decoder(model.architecture, {}, model.weights, model.workspace(dtype))


@compiled
def test_short_and_long_forwards_share_the_workspace() -> None:
    model = RandomModel(Shape())
    alone, helped = decoder_of(model), with_kernel(decoder_of(model), {}, model.weights, "auto")
    assert isinstance(helped, ShortForwards)
    token_ids = model.token_ids(100)
    start = 0
    for count in (40, 1, SHORT_TOKENS, SHORT_TOKENS + 1, 3):
        for decoder in (alone, helped):
            decoder.prefill(token_ids[start : start + count], start)
        start += count
    ours, theirs = (decoder.choose_next(token_ids[start : start + 2], start) for decoder in (helped, alone))
    assert ours.token_id == theirs.token_id
    assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-4)
    torch.testing.assert_close(helped.workspace.buffer, alone.workspace.buffer, atol=1e-4, rtol=1e-4)


@compiled
def test_the_text_is_that_of_torch(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, hidden_size=64, num_attention_heads=2, num_key_value_heads=1)
    options = EngineOptions(str(folder), context_tokens=512, threads=2, dtype="float32")
    helped, alone = load_engine(options), load_engine(replace(options, kernel="off"))
    for cut in range(100, 300, 10):
        request = CompletionRequest("a.py", Prompt(SOURCE[:cut], SOURCE[cut : cut + 50]), max_tokens=16)
        assert helped.complete(request).text == alone.complete(request).text


@compiled
def test_int8_weights_are_another_model() -> None:
    model = RandomModel(Shape())
    whole, rounded = (with_kernel(decoder_of(model), {}, model.weights, mode) for mode in ("auto", "int8"))
    token_ids = model.token_ids(10)
    ours, theirs = rounded.choose_next(token_ids, 0).logprob, whole.choose_next(token_ids, 0).logprob
    assert ours != theirs
    assert ours == pytest.approx(theirs, abs=0.1)


@compiled
def test_the_kernel_can_be_switched_off() -> None:
    model = RandomModel(Shape())
    decoder = decoder_of(model)
    assert with_kernel(decoder, {}, model.weights, "off") is decoder


@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [(Shape(head_dim=24), torch.float32, "head dimension of 24"), (Shape(), torch.float16, "float16")],
)
def test_where_there_is_no_kernel_torch_does_all(shape: Shape, dtype: torch.dtype, reason: str) -> None:
    model = RandomModel(shape, dtype=dtype)
    decoder = decoder_of(model, dtype)
    assert with_kernel(decoder, {}, model.weights, "auto") is decoder
    with pytest.raises(BadInput, match=f"int8 weights need the CPU kernel: .*{reason}"):
        with_kernel(decoder, {}, model.weights, "int8")
