from __future__ import annotations

import math

import pytest

from inference.training.corpus.corpus import Corpus
from inference.training.corpus.vocabulary import Vocabulary
from inference.training.run.format_losses import LAYOUTS, format_losses
from tests.inference.training.run.test_evaluation import Uniform


def test_a_uniform_model_pays_for_every_token(corpus: Corpus, vocabulary: Vocabulary) -> None:
    model = Uniform(vocabulary.size, vocabulary.markers.end_of_text)
    losses = format_losses(model, corpus, vocabulary, samples=8, window=64, batch=3)
    assert [loss.layout for loss in losses] == list(LAYOUTS)
    psm, spm, _ = losses
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
