from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from midfill_lab.training.corpus.corpus import Corpus
from midfill_lab.training.corpus.vocabulary import Vocabulary
from midfill_lab.training.run.evaluation import Shape
from midfill_lab.training.run.exact_lines import LAYOUTS, ExactLines


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
