from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from inference.training.corpus.vocabulary import Vocabulary
from inference.training.examples.windows import Window
from inference.training.options import ModelSize
from inference.training.run import modeling
from inference.training.run.modeling import (
    blocked_attention,
    build_model,
    count_learned,
    token_loss,
    token_losses,
    use_attention_within_examples,
)
from tests.inference.training.runs import TINY


@pytest.mark.parametrize("length", [1, 100, 128, 300])
def test_blocked_attention_is_causal_attention(length: int) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 6, length, 8), torch.randn(2, 2, length, 8), torch.randn(2, 2, length, 8)
    expected = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=1.0, enable_gqa=True)
    first = torch.zeros(2, length, dtype=torch.int64)
    torch.testing.assert_close(blocked_attention(query, key, value, first), expected)


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


def test_training_attention_gives_the_logits_of_transformers(vocabulary: Vocabulary) -> None:
    torch.manual_seed(0)
    model = build_model(TINY, vocabulary).eval()
    ids = torch.randint(vocabulary.size, (2, 150))
    with torch.no_grad():
        expected = model(input_ids=ids).logits
        use_attention_within_examples(model)
        torch.testing.assert_close(model(input_ids=ids).logits, expected, rtol=1e-4, atol=1e-5)


def test_the_loss_is_that_of_the_next_token(vocabulary: Vocabulary) -> None:
    model = build_model(TINY, vocabulary)
    ids = torch.randint(vocabulary.size, (2, 20))
    with torch.no_grad():
        expected = model(input_ids=ids, labels=ids).loss
        all_of_them = torch.ones_like(ids, dtype=torch.bool)
        window = Window.of_rows(ids, all_of_them)
        losses, likeliest = token_losses(model, window)
        torch.testing.assert_close(token_loss(model, window) / 38, expected)
        torch.testing.assert_close(losses.mean(), expected)
    assert losses.shape == likeliest.shape == (38,)
    assert count_learned(all_of_them) == 38


def test_the_loss_counts_only_what_is_to_be_learned(vocabulary: Vocabulary) -> None:
    model = build_model(TINY, vocabulary)
    ids = torch.randint(vocabulary.size, (2, 20))
    learned = torch.zeros_like(ids, dtype=torch.bool)
    learned[0, 0] = learned[0, 5] = learned[1, 19] = True  # nothing predicts the first
    with torch.no_grad():
        all_losses, _ = token_losses(model, Window.of_rows(ids, torch.ones_like(learned)))
        expected = all_losses.view(2, 19)[[0, 1], [4, 18]]
        torch.testing.assert_close(token_losses(model, Window.of_rows(ids, learned))[0], expected)
        torch.testing.assert_close(token_loss(model, Window.of_rows(ids, learned)), expected.sum())
    assert count_learned(learned) == 2


def test_the_default_shape_has_ten_million_parameters(vocabulary: Vocabulary) -> None:
    with torch.device("meta"):
        model = build_model(ModelSize(), vocabulary)
    layers = sum(parameter.numel() for parameter in model.model.layers.parameters())
    assert layers + 8192 * 320 == pytest.approx(10.5e6, rel=0.01)
