from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
)

from midfill_lab.training import model as modeling
from midfill_lab.training.model import (
    Batch,
    build_model,
    compile_layers,
    keeps_examples_apart,
    start_model,
    token_loss,
    token_losses,
    uncompile_layers,
    use_attention_within_examples,
)
from midfill_lab.training.options import LoraOptions, ModelSize, OptionError
from midfill_lab.training.vocabulary import Vocabulary, load_vocabulary
from midfill_lab.training.windows import Window
from tests.lab.training.runs import OPTIONS, TINY


def batch_of(ids: torch.Tensor, learned: torch.Tensor | None = None, multiple: int = 1) -> Batch:
    """An example in each row, of which all is learned unless told."""
    mask = torch.ones_like(ids, dtype=torch.bool) if learned is None else learned
    return Batch.of(Window(ids.numpy().astype(np.uint32), mask.numpy(), np.zeros(ids.shape, np.bool_)), multiple)


@pytest.mark.parametrize("attention", ["transformers", "blocked", "whole"])
def test_examples_of_a_window_do_not_see_each_other(
    vocabulary: Vocabulary, attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = build_model(TINY, vocabulary).eval()
    if attention != "transformers":
        use_attention_within_examples(model)
    monkeypatch.setattr(modeling, "BLOCKED_UP_TO", 1024 if attention == "blocked" else 0)
    examples = [torch.randint(vocabulary.size, (1, length)) for length in (150, 7, 90)]
    positions = torch.cat([torch.arange(example.shape[1]) for example in examples])[None]
    with torch.no_grad():
        packed = model(input_ids=torch.cat(examples, 1), position_ids=positions, use_cache=False).logits
        alone = torch.cat([model(input_ids=example, use_cache=False).logits for example in examples], 1)
    torch.testing.assert_close(packed, alone, rtol=1e-4, atol=1e-5)


def test_the_loss_is_that_of_the_next_token(vocabulary: Vocabulary) -> None:
    model = build_model(TINY, vocabulary)
    ids = torch.randint(vocabulary.size, (2, 20))
    with torch.no_grad():
        expected = model(input_ids=ids, labels=ids).loss
        window = batch_of(ids)
        losses, likeliest = token_losses(model, window)
        torch.testing.assert_close(token_loss(model, window) / 38, expected)
        torch.testing.assert_close(losses.mean(), expected)
    assert losses.shape == likeliest.shape == (38,)


def test_the_loss_counts_only_what_is_to_be_learned(vocabulary: Vocabulary) -> None:
    model = build_model(TINY, vocabulary)
    ids = torch.randint(vocabulary.size, (2, 20))
    learned = torch.zeros_like(ids, dtype=torch.bool)
    learned[0, 0] = learned[0, 5] = learned[1, 19] = True  # nothing predicts the first
    with torch.no_grad():
        all_losses, _ = token_losses(model, batch_of(ids))
        expected = all_losses.view(2, 19)[[0, 1], [4, 18]]
        torch.testing.assert_close(token_losses(model, batch_of(ids, learned))[0], expected)
        torch.testing.assert_close(token_loss(model, batch_of(ids, learned)), expected.sum())


def test_the_default_shape_has_ten_million_parameters(vocabulary: Vocabulary) -> None:
    with torch.device("meta"):
        model = build_model(ModelSize(), vocabulary)
    layers = sum(parameter.numel() for parameter in model.model.layers.parameters())
    assert layers + 8192 * 320 == pytest.approx(10.5e6, rel=0.01)


EXAMPLES = [[40, 1, 87], [128], [5, 123], [64, 64]]  # lengths, in each of four windows


@pytest.fixture
def packed(vocabulary: Vocabulary) -> Batch:
    torch.manual_seed(0)
    window = Window(
        torch.randint(vocabulary.size, (4, 128)).numpy().astype(np.uint32),
        (torch.rand(4, 128) < 0.7).numpy(),
        np.zeros((4, 128), dtype=np.bool_),
    )
    for row, lengths in enumerate(EXAMPLES):
        window.begins[row, np.cumsum([0, *lengths[:-1]])] = True
    return Batch.of(window)


def by_segments(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bounds: torch.Tensor,
    bounds_of_keys: torch.Tensor,
    longest: int,
    longest_of_keys: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    **_: bool,
) -> torch.Tensor:
    """What Flash Attention's kernel for several lengths computes, as torch documents it."""
    assert bounds.dtype == torch.int32
    assert bounds is bounds_of_keys
    assert bounds.diff().max() <= longest == longest_of_keys
    assert window_size == (-1, 0)  # causal
    assert bounds[0] == 0
    assert bounds[-1] == len(query) == len(key) == len(value)
    found = torch.full_like(query, torch.nan)
    for start, stop in pairwise(bounds.tolist()):
        parts = (each[start:stop].transpose(0, 1) for each in (query, key, value))
        one = functional.scaled_dot_product_attention(*parts, is_causal=True, scale=scale, enable_gqa=True)
        found[start:stop] = one.transpose(0, 1)
    return found


@pytest.mark.parametrize("path", ["by example", "variable lengths", "mask"])
def test_every_way_to_attend_has_equal_losses_and_gradients(
    vocabulary: Vocabulary, packed: Batch, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model = build_model(TINY, vocabulary)
    expected = token_loss(model, packed)  # transformers' own, with masks
    expected.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    model.zero_grad()
    use_attention_within_examples(model)
    torch.testing.assert_close(token_loss(model, packed), expected, rtol=1e-5, atol=1e-3)  # blocked
    monkeypatch.setattr(modeling, "BLOCKED_UP_TO", 0)
    monkeypatch.setattr(modeling, "takes_variable_lengths", lambda _: path == "variable lengths")
    monkeypatch.setattr(modeling, "varlen_attn", by_segments)
    given = packed if path != "mask" else packed._replace(bounds=None)
    loss = token_loss(model, given)
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-3)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad, gradients[name], rtol=1e-4, atol=1e-4)


def test_bounds_are_filled_up_to_few_different_numbers(packed: Batch) -> None:
    assert packed.bounds.tolist() == [0, 40, 41, 128, 256, 261, 384, 448, 512]  # 8 of 512 tokens, 64 each
    assert packed.positions[2].tolist() == [*range(5), *range(123)]
    few = batch_of(torch.ones(4, 128, dtype=torch.long))
    assert few.bounds.tolist() == [0, 128, 256, 384, 512, 512, 512, 512, 512]
    assert len(batch_of(torch.ones(64, 8, dtype=torch.long)).bounds) == 64 + 1


def test_places_that_fill_up_change_nothing(vocabulary: Vocabulary) -> None:
    torch.manual_seed(0)
    model = build_model(TINY, vocabulary)
    ids = torch.randint(vocabulary.size, (2, 20))
    exact, filled = batch_of(ids), batch_of(ids, multiple=32)
    assert (len(exact.targets), len(filled.targets), filled.learned) == (38, 64, 38)
    with torch.no_grad():
        torch.testing.assert_close(token_loss(model, filled), token_loss(model, exact))
        for found, expected in zip(token_losses(model, filled), token_losses(model, exact), strict=True):
            torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # torch hides it, but not from pytest
def test_layers_share_one_compiled_frame_without_breaks(
    vocabulary: Vocabulary, packed: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def count(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    torch.manual_seed(0)
    model = build_model(replace(TINY, layers=4), vocabulary)
    use_attention_within_examples(model)
    expected = token_loss(model, packed)
    torch.compiler.reset()
    for layer in modeling._layers(model):
        monkeypatch.setattr(layer, "compile", partial(layer.compile, backend=count, fullgraph=True))
    compile_layers(model)
    for _ in range(2):
        torch.testing.assert_close(token_loss(model, packed), expected)
    assert len(graphs) == 1
    uncompile_layers(model)
    torch.compiler.reset()
    torch.testing.assert_close(token_loss(model, packed), expected)
    assert len(graphs) == 1


def test_torchs_kernel_for_several_lengths_takes_what_it_is_given() -> None:
    if modeling.varlen_attn is None:
        pytest.skip("this torch has no varlen_attn")
    with FakeTensorMode():
        query = torch.empty(256, 9, 64, dtype=torch.bfloat16)
        key = torch.empty(256, 3, 64, dtype=torch.bfloat16)
        bounds = torch.zeros(9, dtype=torch.int32)
        arguments = (query, key, key, bounds, bounds, 128, 128)
        found = modeling.varlen_attn(*arguments, scale=0.125, window_size=(-1, 0), **modeling._GROUPED)
    assert found.shape == query.shape


@pytest.mark.parametrize(
    ("kind", "options", "apart"),
    [
        (LlamaConfig, {}, True),
        (Qwen2Config, {"use_sliding_window": False}, True),
        (MistralConfig, {"sliding_window": 64}, False),
        (GPT2Config, {}, False),
    ],
)
def test_models_with_windows_or_logits_of_their_own_keep_their_attention(
    kind: type[PretrainedConfig], options: dict[str, Any], apart: bool
) -> None:
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 1} if kind is not GPT2Config else {}
    model = AutoModelForCausalLM.from_config(kind(vocab_size=50, **shape, **options))
    use_attention_within_examples(model)
    assert keeps_examples_apart(model) is apart


CONTINUED = replace(OPTIONS, mixed_precision="no", muon_lr=None)


@pytest.fixture(scope="session")
def known(tiny_checkpoint: Path) -> Vocabulary:
    """The vocabulary of the checkpoint that runs start from."""
    return load_vocabulary(tiny_checkpoint / "tokenizer.json")


def test_a_checkpoint_goes_on_with_its_own_weights_in_float32(tiny_checkpoint: Path, known: Vocabulary) -> None:
    model = start_model(replace(CONTINUED, start=str(tiny_checkpoint)), known)
    theirs = LlamaForCausalLM.from_pretrained(tiny_checkpoint, dtype=torch.float32)
    ours = dict(model.named_parameters())
    assert model.training
    for name, weight in theirs.named_parameters():
        assert ours[name].dtype == torch.float32
        assert torch.equal(ours[name], weight)


def test_tokens_that_the_checkpoint_has_no_room_for_get_some(tiny_checkpoint: Path, known: Vocabulary) -> None:
    larger = copy(known)
    larger.size += 1000
    model = start_model(replace(CONTINUED, start=str(tiny_checkpoint)), larger)
    assert isinstance(model, PreTrainedModel)
    embeddings = model.get_input_embeddings()
    assert isinstance(embeddings, torch.nn.Embedding)
    assert embeddings.num_embeddings == larger.size


def test_beside_adapters_the_rows_of_the_markers_can_learn(tiny_checkpoint: Path, known: Vocabulary) -> None:
    lora = LoraOptions(rank=2, train_markers=True)
    model = start_model(replace(CONTINUED, start=str(tiny_checkpoint), lora=lora), known)
    learning = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    rows = [weight for name, weight in learning.items() if "lora_" not in name]
    assert sum(weight.numel() for weight in rows) == 3 * model.config.hidden_size
    ids = torch.tensor([[known.markers.prefix, 1, known.markers.suffix, 2, known.markers.middle or 0, 3]])
    token_loss(model, batch_of(ids)).backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in rows)


def test_layers_that_are_not_there_are_named(tiny_checkpoint: Path, known: Vocabulary) -> None:
    lora = LoraOptions(target_modules=("no_such_layer",))
    with pytest.raises(OptionError, match="no adapters on no_such_layer"):
        start_model(replace(CONTINUED, start=str(tiny_checkpoint), lora=lora), known)
