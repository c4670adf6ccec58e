"""Measures a model on held-out middles by prompt format, with and without fragments, and by family of languages."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from random import Random
from typing import NamedTuple

import torch

from midfill_lab.training.corpus.corpus import Corpus
from midfill_lab.training.corpus.languages import Family, family_of
from midfill_lab.training.corpus.vocabulary import Vocabulary
from midfill_lab.training.examples.examples import FimExample, Layout, cut_example, random_fragments, split_at
from midfill_lab.training.options import ExampleOptions
from midfill_lab.training.run.evaluation import (
    MeanMiddle,
    Middle,
    Shape,
    mean_of,
    measure_middles,
    measure_texts,
    random_lines,
)

PLAIN = "text"
LAYOUTS: tuple[Layout, ...] = ("psm", "spm", "efim")
FAMILIES: tuple[Family, ...] = ("python", "web", "other")
_CHARS_PER_TOKEN = 4


@dataclass(frozen=True)
class FormatLoss:
    """Held-out middles in one format, or of one family of languages over all formats.

    Attributes:
        layout: the format, the family's name, or `PLAIN` for text left to right, of which only `whole` and `fragments`
            are measured, in nats per byte.
        whole: nats per byte of middle, its end included, with the middle tokenized as one fragment.
        fragments: the same with the middle in two fragments, split at the cursor (EFIM) or anywhere (PSM, SPM).
        ends: share of middles, in fragments, at whose end the end token is the most probable.
        early: share of them where it is the most probable at an earlier place.
        exact: share of them whose every token is the most probable one, the end included.
    """

    layout: str
    whole: float
    fragments: float
    ends: float
    early: float
    exact: float


class _Text(NamedTuple):
    text: str
    family: Family


@torch.no_grad()
def format_losses(
    model: torch.nn.Module, corpus: Corpus, vocabulary: Vocabulary, *, samples: int, window: int, batch: int
) -> tuple[FormatLoss, ...]:
    """Measure on `samples` examples of about `window` tokens, with the same cursors in every format.

    The examples are of all families in turn; the results are those of each format, then, if there are several families,
    of each family, and last of the same text left to right.
    """
    was_training = model.training
    torch.nn.Module.eval(model)
    shape = Shape(batch, window)
    texts = _texts(corpus, samples, window)
    measured = {layout: _measure(model, [one.text for one in texts], layout, vocabulary, shape) for layout in LAYOUTS}
    plain = _measure_plain(model, [one.text for one in texts], vocabulary, shape)
    torch.nn.Module.train(model, was_training)
    losses = [_loss(layout, whole, fragments) for layout, (whole, fragments) in measured.items()]
    by_family: dict[Family, tuple[list[Middle], list[Middle]]] = defaultdict(lambda: ([], []))
    for whole, fragments in measured.values():
        for text, *pair in zip(texts, whole, fragments, strict=True):
            for kept, middle in zip(by_family[text.family], pair, strict=True):
                kept.append(middle)
    if len(by_family) > 1:
        losses += [_loss(family, *by_family[family]) for family in FAMILIES if family in by_family]
    return (*losses, _loss(PLAIN, *plain))


def _measure_plain(
    model: torch.nn.Module, texts: Sequence[str], vocabulary: Vocabulary, shape: Shape
) -> tuple[list[Middle], list[Middle]]:
    """Every text left to right, whole and in fragments."""
    rng = Random("fragments")
    split = [random_fragments(text, ExampleOptions(), rng) for text in texts]
    whole = [(text,) for text in texts]
    return measure_texts(model, whole, vocabulary, shape), measure_texts(model, split, vocabulary, shape)


def _texts(corpus: Corpus, samples: int, window: int) -> list[_Text]:
    rng = Random("held out")
    documents: dict[Family, list[int]] = defaultdict(list)
    for index, path in enumerate(corpus.paths):
        documents[family_of(path)].append(index)
    families = islice(cycle(family for family in FAMILIES if family in documents), samples)
    return [_Text(random_lines(corpus, rng, window * _CHARS_PER_TOKEN, documents[one]), one) for one in families]


def _loss(name: str, whole: Sequence[Middle], fragments: Sequence[Middle]) -> FormatLoss:
    mean: MeanMiddle = mean_of(fragments)
    return FormatLoss(name, mean_of(whole).loss, mean.loss, mean.ends, mean.early, mean.exact)


def _measure(
    model: torch.nn.Module, texts: Sequence[str], layout: Layout, vocabulary: Vocabulary, shape: Shape
) -> tuple[list[Middle], list[Middle]]:
    """Every text's middle, whole and in fragments."""
    options = ExampleOptions(
        efim_rate=float(layout == "efim"),
        spm_rate=float(layout == "spm"),
        fim_rate=1,
        fragment_rate=1,
        context_fragment_rate=0,
        further_cuts_rate=0,
        open_end_rate=0,
    )
    cut = [cut_example(text, options, Random(f"cursor {index}")) for index, text in enumerate(texts)]
    fragments = cut if layout == "efim" else [_in_two(example, index) for index, example in enumerate(cut)]
    whole = [replace(example, middle=("".join(example.middle),)) for example in cut]
    return measure_middles(model, whole, vocabulary, shape), measure_middles(model, fragments, vocabulary, shape)


def _in_two(example: FimExample, index: int) -> FimExample:
    middle = "".join(example.middle)
    return replace(example, middle=split_at(middle, [Random(f"cut {index}").randint(0, len(middle))]))
