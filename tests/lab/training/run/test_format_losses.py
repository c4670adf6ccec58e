from __future__ import annotations

import math
from pathlib import Path
from random import Random

import pytest
import torch

from midfill_lab.training.corpus.corpus import Corpus, Document, Manifest, write_corpus
from midfill_lab.training.corpus.vocabulary import Vocabulary
from midfill_lab.training.run.format_losses import LAYOUTS, PLAIN, format_losses
from tests.lab.packages import write_module


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
