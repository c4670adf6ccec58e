from __future__ import annotations

from dataclasses import replace

import pytest

from inference.training.corpus.corpus import Corpus
from inference.training.corpus.vocabulary import Vocabulary
from inference.training.examples.windows import Windows
from inference.training.options import ExampleOptions

LENGTH = 128


def windows(corpus: Corpus, vocabulary: Vocabulary, seed: int = 0, **options: float) -> Windows:
    return Windows(corpus, vocabulary, replace(ExampleOptions(), **options), length=LENGTH, seed=seed)


def test_windows_are_full_and_without_padding(corpus: Corpus, vocabulary: Vocabulary) -> None:
    made = windows(corpus, vocabulary)
    for index in range(50):
        assert made[index].shape == (LENGTH,)
        assert vocabulary.markers.padding not in made[index]


def test_a_window_depends_on_nothing_but_its_seed_and_index(corpus: Corpus, vocabulary: Vocabulary) -> None:
    first, second = windows(corpus, vocabulary), windows(corpus, vocabulary)
    for index in (9, 3, 10_000):
        assert first[index].equal(second[index])
    assert not first[3].equal(windows(corpus, vocabulary, seed=1)[3])
    assert not first[3].equal(first[4])


def test_fill_in_the_middle_examples_are_whole(corpus: Corpus, vocabulary: Vocabulary) -> None:
    markers = vocabulary.markers
    made = windows(corpus, vocabulary, fim_rate=1.0, spm_rate=0.0)
    middles = 0
    for index in range(50):
        ids = made[index].tolist()
        counts = [ids.count(marker) for marker in (markers.prefix, markers.suffix, markers.middle)]
        assert counts[0] == counts[1] == counts[2] <= ids.count(markers.end_of_text)
        middles += counts[2]
    assert middles >= 40


def test_without_fill_in_the_middle_there_are_no_markers(corpus: Corpus, vocabulary: Vocabulary) -> None:
    made = windows(corpus, vocabulary, fim_rate=0.0, fragment_rate=0.0)
    for index in range(20):
        assert vocabulary.markers.middle not in made[index]


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_epoch_walks_over_the_whole_corpus(corpus: Corpus, vocabulary: Vocabulary, epoch: int) -> None:
    made = windows(corpus, vocabulary, fim_rate=0.0, fragment_rate=0.0)
    epoch_windows = range(epoch * made.windows_per_epoch, (epoch + 1) * made.windows_per_epoch)
    text = "".join(vocabulary.decode(made[index].tolist()) for index in epoch_windows)
    names = {line for index in range(len(corpus)) for line in corpus.document(index).splitlines() if "def " in line}
    # Slots hold about a window's worth of text: what is over is cut off.
    assert sum(name in text for name in names) > 0.75 * len(names)
