"""Measures the losses on held-out middles by prompt format, with and without fragments."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

import torch

from inference.training.corpus.corpus import Corpus
from inference.training.corpus.vocabulary import Vocabulary
from inference.training.examples.examples import FimExample, Layout, cut_example, split_at
from inference.training.options import ExampleOptions
from inference.training.run.evaluation import middle_loss, random_lines

LAYOUTS: tuple[Layout, ...] = ("psm", "spm", "efim")
_CHARS_PER_TOKEN = 4


@dataclass(frozen=True)
class FormatLoss:
    """Nats per byte of middle, including its end, in one format.

    Attributes:
        whole: with the middle tokenized as one fragment.
        fragments: with the middle in two fragments, split at the cursor (EFIM) or anywhere (PSM, SPM).
    """

    layout: Layout
    whole: float
    fragments: float


@torch.no_grad()
def format_losses(
    model: torch.nn.Module, corpus: Corpus, vocabulary: Vocabulary, *, samples: int, window: int, batch: int
) -> tuple[FormatLoss, ...]:
    """Measure on `samples` examples of about `window` tokens, with the same cursors in every format."""
    was_training = model.training
    torch.nn.Module.eval(model)
    rng = Random("held out")
    texts = [random_lines(corpus, rng, window * _CHARS_PER_TOKEN) for _ in range(samples)]
    losses = tuple(_format_loss(model, texts, layout, vocabulary, batch) for layout in LAYOUTS)
    torch.nn.Module.train(model, was_training)
    return losses


def _format_loss(
    model: torch.nn.Module, texts: Sequence[str], layout: Layout, vocabulary: Vocabulary, batch: int
) -> FormatLoss:
    options = ExampleOptions(
        efim_rate=float(layout == "efim"),
        spm_rate=float(layout == "spm"),
        fim_rate=1,
        fragment_rate=1,
        context_fragment_rate=0,
        max_fragments=2,
        open_end_rate=0,
    )
    cut = [cut_example(text, options, Random(f"cursor {index}")) for index, text in enumerate(texts)]
    fragments = cut if layout == "efim" else [_in_two(example, index) for index, example in enumerate(cut)]
    whole = [replace(example, middle=("".join(example.middle),)) for example in cut]
    return FormatLoss(
        layout,
        whole=middle_loss(model, whole, vocabulary, batch)[0],
        fragments=middle_loss(model, fragments, vocabulary, batch)[0],
    )


def _in_two(example: FimExample, index: int) -> FimExample:
    middle = "".join(example.middle)
    return replace(example, middle=split_at(middle, [Random(f"cut {index}").randint(0, len(middle))]))
