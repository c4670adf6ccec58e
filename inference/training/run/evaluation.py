"""Measures the losses on held-out middles and texts."""

import math
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import torch
from torch import Tensor

from inference.training.corpus.corpus import Corpus
from inference.training.corpus.vocabulary import Vocabulary
from inference.training.examples.examples import FimExample, Tokens, encode_fragments, lay_out
from inference.training.examples.windows import Window
from inference.training.run.modeling import token_losses

_BATCH = 8
_TRIES = 100


class Middle(NamedTuple):
    """What a model makes of one middle.

    Attributes:
        nats: its loss, its end included, without what is typed: the tokens that a cut makes at a fragment's end.
        num_bytes: the size of the same tokens.
        ends: whether the end token is the most probable one at its end.
        early: whether it is at an earlier place.
    """

    nats: float
    num_bytes: int
    ends: bool
    early: bool


class MeanMiddle(NamedTuple):
    """Nats per byte over several middles, and the shares of those whose end is predicted in place, and too early."""

    loss: float
    ends: float
    early: float


def mean_of(middles: Sequence[Middle]) -> MeanMiddle:
    """The means over middles; NaN for none."""
    if not middles:
        return MeanMiddle(math.nan, math.nan, math.nan)
    num_bytes = max(1, sum(middle.num_bytes for middle in middles))
    ends, early = (sum(one[index] for one in middles) / len(middles) for index in (2, 3))
    return MeanMiddle(sum(middle.nats for middle in middles) / num_bytes, ends, early)


def measure_middles(
    model: torch.nn.Module, examples: Sequence[FimExample], vocabulary: Vocabulary, batch: int = _BATCH
) -> list[Middle]:
    """Measure each middle, `batch` examples at a time."""
    end = vocabulary.markers.end_of_text
    laid_out = [lay_out(example, vocabulary) for example in examples]
    measured = _losses(model, [(prompt.ids, middle) for prompt, middle in laid_out], batch)
    return [
        Middle(
            nats=float(losses.sum()),
            num_bytes=vocabulary.count_bytes(_learned(middle)),
            ends=int(likeliest[-1]) == end,
            early=bool((likeliest[:-1] == end).any()),
        )
        for (_, middle), (losses, likeliest) in zip(laid_out, measured, strict=True)
    ]


def measure_texts(
    model: torch.nn.Module, texts: Sequence[Sequence[str]], vocabulary: Vocabulary, batch: int = _BATCH
) -> list[Middle]:
    """Measure each text, given as its fragments, left to right without its first token; the ends are not measured."""
    encoded = [encode_fragments(text, vocabulary) for text in texts]
    measured = _losses(model, [([], tokens) for tokens in encoded], batch)
    return [
        Middle(float(losses.sum()), vocabulary.count_bytes(_learned(tokens)), ends=False, early=False)
        for tokens, (losses, _) in zip(encoded, measured, strict=True)
    ]


def _learned(tokens: Tokens) -> list[int]:
    return [token for token, learned in zip(*tokens, strict=True) if learned]


def _losses(
    model: torch.nn.Module, sequences: Sequence[tuple[list[int], Tokens]], batch: int = _BATCH
) -> list[tuple[Tensor, Tensor]]:
    """Loss and most probable token, float32 and int64 [N], for the learned tokens of each sequence's second part.

    Without a first part, the first token does not count: nothing predicts it.
    """
    results: dict[int, tuple[Tensor, Tensor]] = {}
    ids = [prompt + text.ids for prompt, text in sequences]
    order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
    device = next(model.parameters()).device
    for first in range(0, len(order), batch):
        rows = order[first : first + batch]
        # Padding is on the right, where causal attention hides it from the measured tokens.
        padded = torch.zeros(len(rows), len(ids[rows[-1]]), dtype=torch.int64)
        learned = torch.zeros_like(padded, dtype=torch.bool)
        for row, index in enumerate(rows):
            padded[row, : len(ids[index])] = torch.tensor(ids[index])
            prompt, text = sequences[index]
            learned[row, len(prompt) : len(ids[index])] = torch.tensor(text.learned)
            learned[row, 0] = False
        losses, likeliest = token_losses(model, Window.of_rows(padded.to(device), learned.to(device)))
        counts = learned.sum(1).tolist()
        pairs = zip(torch.split(losses.cpu(), counts), torch.split(likeliest.cpu(), counts), strict=True)
        results |= dict(zip(rows, pairs, strict=True))
    return [results[index] for index in range(len(ids))]


def random_lines(corpus: Corpus, rng: Random, size: int, documents: Sequence[int] | None = None) -> str:
    """Whole lines of about `size` bytes from a random position in one of some documents; fewer if all are short."""
    text = ""
    for _ in range(_TRIES):
        document = rng.choice(documents) if documents is not None else rng.randrange(len(corpus))
        length = int(corpus.boundaries[document + 1] - corpus.boundaries[document])
        start = rng.randint(0, max(0, length - size))
        text = corpus.lines_between(document, start, start + size)
        if len(text) >= min(size, 200):
            break
    return text
