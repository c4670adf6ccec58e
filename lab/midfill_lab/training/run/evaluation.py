"""Measures held-out middles and texts, packed into windows of one size as those of training are."""

import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from midfill_lab.training.corpus.corpus import Corpus
from midfill_lab.training.corpus.vocabulary import Vocabulary
from midfill_lab.training.examples.examples import FimExample, Tokens, encode_fragments, lay_out
from midfill_lab.training.examples.windows import Window
from midfill_lab.training.run.batches import Batch
from midfill_lab.training.run.modeling import keeps_examples_apart, token_losses

_TRIES = 100


class Middle(NamedTuple):
    """What a model makes of one middle.

    Attributes:
        nats: its loss, its end included, without what is typed: the tokens that a cut makes at a fragment's end.
        num_bytes: the size of the same tokens.
        ends: whether the end token is the most probable one at its end.
        early: whether it is at an earlier place.
        exact: whether each token is the most probable one after those before it: what greedy decoding would write.
    """

    nats: float
    num_bytes: int
    ends: bool
    early: bool
    exact: bool


class MeanMiddle(NamedTuple):
    """Nats per byte over several middles, and the shares of those that are `ends`, `early` and `exact`."""

    loss: float
    ends: float
    early: float
    exact: float


class Shape(NamedTuple):
    """The windows of a batch, and the tokens of each."""

    windows: int
    tokens: int


def mean_of(middles: Sequence[Middle]) -> MeanMiddle:
    """The means over middles; NaN for none."""
    if not middles:
        return MeanMiddle(math.nan, math.nan, math.nan, math.nan)
    num_bytes = max(1, sum(middle.num_bytes for middle in middles))
    ends, early, exact = (sum(one[index] for one in middles) / len(middles) for index in (2, 3, 4))
    return MeanMiddle(sum(middle.nats for middle in middles) / num_bytes, ends, early, exact)


def measure_middles(
    model: torch.nn.Module, examples: Sequence[FimExample], vocabulary: Vocabulary, shape: Shape
) -> list[Middle]:
    """Measure the middle of each example."""
    laid_out = [lay_out(example, vocabulary) for example in examples]
    end = vocabulary.markers.end_of_text
    return _measured(model, [(prompt.ids, middle) for prompt, middle in laid_out], vocabulary, shape, end)


def measure_texts(
    model: torch.nn.Module, texts: Sequence[Sequence[str]], vocabulary: Vocabulary, shape: Shape
) -> list[Middle]:
    """Measure each text, given as its fragments, left to right without its first token; the ends are not measured."""
    encoded = [encode_fragments(text, vocabulary) for text in texts]
    return _measured(model, [([], tokens) for tokens in encoded], vocabulary, shape, None)


def _measured(
    model: torch.nn.Module,
    sequences: Sequence[tuple[list[int], Tokens]],
    vocabulary: Vocabulary,
    shape: Shape,
    end: int | None,
) -> list[Middle]:
    packed = pack(sequences, shape, apart=not keeps_examples_apart(model))
    measured: list[Middle] = []
    for (_, text), (losses, likeliest) in zip(sequences, predict(model, packed), strict=True):
        wanted = [token for token, learned in zip(*text, strict=True) if learned]
        size = vocabulary.count_bytes(wanted)  # with a first token, which costs nothing
        found = likeliest.tolist()
        measured.append(
            Middle(
                nats=float(losses.sum()),
                num_bytes=size,
                ends=end is not None and found[-1] == end,
                early=end is not None and end in found[:-1],
                exact=end is not None and found == wanted[-len(found) :],
            )
        )
    return measured


class Packed(NamedTuple):
    """Sequences in windows.

    Attributes:
        batches: of windows.
        order: the sequences in the order in which the windows have them.
        counts: of the tokens to predict in each, in this order.
    """

    batches: tuple[Batch, ...]
    order: tuple[int, ...]
    counts: tuple[int, ...]


def pack(
    sequences: Sequence[tuple[list[int], Tokens]], shape: Shape, *, apart: bool = False, full: bool = False
) -> Packed:
    """Pack sequences, each a prompt and what of the text behind it is to be predicted.

    apart: a window for each, for models whose examples see each other.
    full: makes all batches as large as the first, and the tokens of a window exactly those of the shape: longer
        sequences lose the head of their prompts.
    """
    if full:
        sequences = [(prompt[max(0, len(prompt) + len(text.ids) - shape.tokens) :], text) for prompt, text in sequences]
    lengths = [len(prompt) + len(text.ids) for prompt, text in sequences]
    tokens = max((shape.tokens, *lengths))
    windows: list[list[int]] = []
    room = 0
    for index in sorted(range(len(sequences)), key=lambda index: -lengths[index]):
        if apart or lengths[index] > room:
            windows.append([])
            room = tokens
        windows[-1].append(index)
        room -= lengths[index]
    batches: list[Batch] = []
    for first in range(0, len(windows), shape.windows):
        own = windows[first : first + shape.windows]
        rows = shape.windows if full else len(own)
        window = Window._make(np.zeros((rows, tokens), kind) for kind in (np.uint32, np.bool_, np.bool_))
        for row, indices in enumerate(own):
            place = 0
            for index in indices:
                prompt, text = sequences[index]
                middle, stop = place + len(prompt), place + lengths[index]
                window.begins[row, place] = True
                window.ids[row, place:stop] = prompt + text.ids
                window.learned[row, middle:stop] = text.learned
                place = stop
            if place < tokens:
                window.begins[row, place] = True
        batches.append(Batch.of(window))
    order = [index for indices in windows for index in indices]
    # Without a prompt nothing predicts the first token.
    counts = [sum(text.learned) - (not prompt and text.learned[:1] == [True]) for prompt, text in sequences]
    return Packed(tuple(batches), tuple(order), tuple(counts[index] for index in order))


def predict(model: torch.nn.Module, packed: Packed, *, compiled: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    """Loss and most probable token, float32 and int64 [N], of what is to be predicted in each sequence, in their order.

    compiled: as of `token_losses`.
    """
    device = next(model.parameters()).device
    found = [token_losses(model, batch.to(device), compiled=compiled) for batch in packed.batches]
    if not found:
        return
    parts = (torch.split(torch.cat(each).cpu(), list(packed.counts)) for each in zip(*found, strict=True))
    by_index = dict(zip(packed.order, zip(*parts, strict=True), strict=True))
    yield from (by_index[index] for index in range(len(packed.order)))


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
