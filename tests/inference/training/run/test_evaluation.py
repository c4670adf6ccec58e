from __future__ import annotations

import math
from pathlib import Path
from random import Random

import pytest
import torch

from inference.training.corpus.corpus import Corpus, Document, Manifest, write_corpus
from inference.training.corpus.vocabulary import Vocabulary
from inference.training.run.evaluation import evaluate
from inference.training.run.modeling import build_model
from tests.inference.training.packages import write_module
from tests.inference.training.runs import TINY


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


def test_a_uniform_model_has_the_loss_of_its_vocabulary(corpus: Corpus, vocabulary: Vocabulary) -> None:
    model = Uniform(vocabulary.size, vocabulary.markers.end_of_text)
    losses = evaluate(model, corpus, vocabulary, samples=8, window=64)
    assert losses.left_to_right == pytest.approx(math.log(vocabulary.size), rel=1e-4)
    assert losses.stops == 1
    assert losses.far is None
    # More fragments, more tokens: a model that learned nothing pays for each.
    assert losses.fragments > losses.whole > 0


def test_long_documents_are_measured_far_from_their_beginning(vocabulary: Vocabulary, tmp_path: Path) -> None:
    write_corpus(tmp_path, {"held_out": [Document(write_module(Random(0), 150), "a", "a.py")]}, Manifest((), {}))
    model = Uniform(vocabulary.size, vocabulary.markers.end_of_text)
    losses = evaluate(model, Corpus(tmp_path, "held_out"), vocabulary, samples=1, window=64)
    assert losses.far == pytest.approx(math.log(vocabulary.size), rel=1e-4)


def test_the_same_corpus_gives_the_same_losses(corpus: Corpus, vocabulary: Vocabulary) -> None:
    torch.manual_seed(0)
    model = build_model(TINY, vocabulary)
    first, second = (evaluate(model, corpus, vocabulary, samples=4, window=64) for _ in range(2))
    assert first == second
    assert first.stops == 0
