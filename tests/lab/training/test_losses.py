from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch.nn import functional

from midfill_lab.training.corpus import Corpus, Document, Manifest, write_corpus
from midfill_lab.training.examples import FimExample, cut_example
from midfill_lab.training.losses import (
    LAYOUTS,
    PLAIN,
    ExactLines,
    Middle,
    Shape,
    format_losses,
    measure_middles,
    measure_texts,
    random_lines,
)
from midfill_lab.training.model import build_model, use_attention_within_examples
from midfill_lab.training.options import ExampleOptions
from midfill_lab.training.vocabulary import Vocabulary
from tests.lab.packages import write_module
from tests.lab.training.runs import TINY


def examples(corpus: Corpus) -> list[FimExample]:
    rng = Random(0)
    return [cut_example(random_lines(corpus, rng, 250), ExampleOptions(), rng) for _ in range(9)]


def assert_close(found: list[Middle], expected: list[Middle]) -> None:
    assert [one[1:] for one in found] == [one[1:] for one in expected]
    assert [one.nats for one in found] == pytest.approx([one.nats for one in expected], rel=1e-4)


@torch.no_grad()
def test_middles_in_common_windows_have_the_losses_of_each_alone(corpus: Corpus, vocabulary: Vocabulary) -> None:
    torch.manual_seed(0)
    model = build_model(TINY, vocabulary)
    chosen = examples(corpus)
    texts = [("def first():\n", "    return 1\n"), ("x",), ("import os\n" * 20,)]
    alone = (measure_middles(model, chosen, vocabulary, Shape(1, 1)), measure_texts(model, texts, vocabulary, Shape(1, 1)))
    use_attention_within_examples(model)
    for shape in (Shape(1, 250), Shape(4, 1000)):
        assert_close(measure_middles(model, chosen, vocabulary, shape), alone[0])
        assert_close(measure_texts(model, texts, vocabulary, shape), alone[1])


class Uniform(torch.nn.Module):
    """Gives every token the same probability, but for one that it prefers by a hair."""

    def __init__(self, size: int, preferred: int) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(size))
        self.bias.data[preferred] = 1e-6

    def forward(self, input_ids: torch.Tensor, **_: object) -> object:
        class Output:
            logits = self.bias.expand(*input_ids.shape, -1)

        return Output


def test_a_uniform_model_pays_for_every_token(corpus: Corpus, vocabulary: Vocabulary) -> None:
    model = Uniform(vocabulary.size, vocabulary.markers.end_of_text)
    losses = format_losses(model, corpus, vocabulary, samples=8, window=64, batch=3)
    assert [loss.layout for loss in losses] == [*LAYOUTS, PLAIN]
    psm, spm, _, _ = losses
    # The same middles in another order, which this model does not look at.
    assert psm.whole == pytest.approx(spm.whole)
    assert psm.fragments == pytest.approx(spm.fragments)
    # More fragments, more tokens; a byte is a token at most, and there is the end.
    assert all(0 < loss.whole < loss.fragments < 2 * math.log(vocabulary.size) for loss in losses)


def test_the_model_is_left_as_it_was(corpus: Corpus, vocabulary: Vocabulary) -> None:
    model = Uniform(vocabulary.size, 0)
    for training in (True, False):
        model.train(training)
        format_losses(model, corpus, vocabulary, samples=1, window=64, batch=1)
        assert model.training is training


def test_the_end_token_is_told_in_place_from_too_early(corpus: Corpus, vocabulary: Vocabulary) -> None:
    always = format_losses(
        Uniform(vocabulary.size, vocabulary.markers.end_of_text), corpus, vocabulary, samples=4, window=64, batch=4
    )
    never = format_losses(Uniform(vocabulary.size, 5), corpus, vocabulary, samples=4, window=64, batch=4)
    assert [loss.ends for loss in always] == [1, 1, 1, 0]  # text has no ends
    assert all(loss.early > 0 for loss in always[:3])
    assert all(loss.ends == loss.early == 0 for loss in never)


def test_families_of_languages_are_told_apart(vocabulary: Vocabulary, tmp_path: Path) -> None:
    texts = [write_module(Random(seed), 10) for seed in range(3)]
    documents = [Document(text, "a", name) for text, name in zip(texts, ("a.py", "b.ts", "c.go"), strict=True)]
    write_corpus(tmp_path, {"held_out": documents}, Manifest((), {}))
    model = Uniform(vocabulary.size, 0)
    losses = format_losses(model, Corpus(tmp_path, "held_out"), vocabulary, samples=6, window=64, batch=3)
    assert [loss.layout for loss in losses] == [*LAYOUTS, "python", "web", "other", PLAIN]


class Oracle(torch.nn.Module):
    """Predicts the tokens that it is given, but for one that it never expects."""

    def __init__(self, size: int, unexpected: int = -1) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.size, self.unexpected = size, unexpected
        self.seen: set[tuple[int, ...]] = set()

    def forward(self, input_ids: torch.Tensor, **_: object) -> Any:
        self.seen.add(tuple(input_ids.shape))
        likeliest = input_ids.roll(-1, 1)
        likeliest[likeliest == self.unexpected] = 0

        class Output:
            logits = functional.one_hot(likeliest, self.size) * self.weight

        return Output


@pytest.mark.parametrize(("unexpected", "share"), [(None, 1.0), ("end", 0.0)])
def test_a_line_is_exact_if_every_token_and_the_end_are_the_most_probable(
    corpus: Corpus, vocabulary: Vocabulary, unexpected: str | None, share: float
) -> None:
    lines = ExactLines(corpus, vocabulary, 12, Shape(3, 256))
    model = Oracle(vocabulary.size, vocabulary.markers.end_of_text if unexpected else -1)
    assert lines.lines == 12
    assert lines.shares(model) == dict.fromkeys(LAYOUTS, share)
    assert model.seen == {(3, 256)}  # of the last batch too: other shapes would be compiled anew


def test_lines_above_are_the_increment_and_are_not_measured(corpus: Corpus, vocabulary: Vocabulary) -> None:
    lines = ExactLines(corpus, vocabulary, 12, Shape(3, 256))
    counts = [packed.counts for packed in lines._packed.values()]
    assert [sorted(each) for each in counts] == [sorted(counts[0])] * 3  # the same tokens in every layout
    assert max(counts[0]) < 60
    model = Oracle(vocabulary.size, vocabulary.markers.middle or 0)  # a prompt's own marker counts for nothing
    assert lines.shares(model) == dict.fromkeys(LAYOUTS, 1.0)
