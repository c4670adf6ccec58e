from __future__ import annotations

from random import Random

import pytest
import torch

from midfill_lab.training.corpus.corpus import Corpus
from midfill_lab.training.corpus.vocabulary import Vocabulary
from midfill_lab.training.examples.examples import FimExample, cut_example
from midfill_lab.training.options import ExampleOptions
from midfill_lab.training.run.evaluation import Middle, Shape, measure_middles, measure_texts, random_lines
from midfill_lab.training.run.modeling import build_model, use_attention_within_examples
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
    alone = (
        measure_middles(model, chosen, vocabulary, Shape(1, 1)),
        measure_texts(model, texts, vocabulary, Shape(1, 1)),
    )
    use_attention_within_examples(model)
    for shape in (Shape(1, 250), Shape(4, 1000)):
        assert_close(measure_middles(model, chosen, vocabulary, shape), alone[0])
        assert_close(measure_texts(model, texts, vocabulary, shape), alone[1])
