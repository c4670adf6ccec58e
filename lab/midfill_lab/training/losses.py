"""Measures held-out text: losses of middles by prompt format, with and without fragments, and lines written exactly.

A greedy completion is exact if and only if each of its tokens is the most probable one after the true ones before it.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from midfill_lab.training.corpus import Corpus, Family, family_of
from midfill_lab.training.examples import (
    FimExample,
    Layout,
    Tokens,
    cut_example,
    encode_fragments,
    lay_out,
    random_fragments,
    split_at,
)
from midfill_lab.training.model import Batch, keeps_examples_apart, token_losses
from midfill_lab.training.options import ExampleOptions
from midfill_lab.training.vocabulary import Vocabulary
from midfill_lab.training.windows import Window

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


def measure_middles(model: torch.nn.Module, examples: Sequence[FimExample], vocabulary: Vocabulary, shape: Shape) -> list[Middle]:
    """Measure the middle of each example."""
    laid_out = [lay_out(example, vocabulary) for example in examples]
    end = vocabulary.markers.end_of_text
    return _measured(model, [(prompt.ids, middle) for prompt, middle in laid_out], vocabulary, shape, end)


def measure_texts(model: torch.nn.Module, texts: Sequence[Sequence[str]], vocabulary: Vocabulary, shape: Shape) -> list[Middle]:
    """Measure each text, given as its fragments, left to right without its first token; the ends are not measured."""
    encoded = [encode_fragments(text, vocabulary) for text in texts]
    return _measured(model, [([], tokens) for tokens in encoded], vocabulary, shape, None)


def _measured(
    model: torch.nn.Module, sequences: Sequence[tuple[list[int], Tokens]], vocabulary: Vocabulary, shape: Shape, end: int | None
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


def pack(sequences: Sequence[tuple[list[int], Tokens]], shape: Shape, *, apart: bool = False, full: bool = False) -> Packed:
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


_BYTES_BEFORE, _BYTES_BEHIND = 700, 300
_LINES_SINCE_ANCHOR = 6
_LEAST_CHARS = 8


class ExactLines:
    """Held-out lines, each in all layouts, in batches as large as those of training: nothing is compiled anew."""

    def __init__(self, corpus: Corpus, vocabulary: Vocabulary, lines: int, shape: Shape) -> None:
        """Choose `lines` lines of code at random, the same ones every time, with what is around them."""
        rng = Random("exact lines")
        chosen = [example for _ in range(lines) if (example := _line(corpus, rng))]
        self.lines = len(chosen)
        self._packed: dict[Layout, Packed] = {
            layout: pack([_laid_out(layout, *parts, vocabulary) for parts in chosen], shape, full=True) for layout in LAYOUTS
        }

    def shares(self, model: torch.nn.Module) -> dict[Layout, float]:
        """The share of exact lines in each layout; the model may be compiled, and has to be on its device."""
        return {layout: _share_exact(model, packed) for layout, packed in self._packed.items()}


def _share_exact(model: torch.nn.Module, packed: Packed) -> float:
    wanted = torch.cat([batch.targets[: batch.learned] for batch in packed.batches] or [torch.zeros(0)])
    by_place = torch.split(wanted, list(packed.counts))
    by_index = dict(zip(packed.order, by_place, strict=True))
    predicted = enumerate(predict(model, packed, compiled=True))
    return sum(likeliest.equal(by_index[index]) for index, (_, likeliest) in predicted) / max(1, len(by_index))


def _line(corpus: Corpus, rng: Random) -> tuple[str, str, str] | None:
    """The text before a random line of code behind its indentation, the rest of the line, and the text behind it."""
    for _ in range(_TRIES):
        document = rng.randrange(len(corpus))
        line = rng.choice(corpus.lines(document))
        start, end = corpus.line_starts[[line, line + 1]].tolist()
        first, last = corpus.boundaries[[document, document + 1]].tolist()
        text = corpus.text_between(start, end).removesuffix("\n")
        code = text.lstrip()
        if len(code) >= _LEAST_CHARS and not code.startswith(("#", "//", "*", "/*", '"""')):
            before = corpus.lines_between(document, max(0, start - first - _BYTES_BEFORE), start - first)
            behind = corpus.lines_between(document, end - first, min(last - first, end - first + _BYTES_BEHIND))
            return before + text[: len(text) - len(code)], code, "\n" + behind
    return None


def _laid_out(layout: Layout, before: str, line: str, behind: str, vocabulary: Vocabulary) -> tuple[list[int], Tokens]:
    """The tokens in front of a line, and those of the line with the end; in EFIM lines above it are the increment."""
    starts = [0, *(place + 1 for place, char in enumerate(before) if char == "\n")]
    anchor = starts[max(0, len(starts) - 1 - _LINES_SINCE_ANCHOR)] if layout == "efim" else len(before)
    middle = tuple(part for part in (before[anchor:], line) if part)
    prefix = tuple(part for part in (before[:anchor],) if part)
    example = FimExample(prefix, middle, (behind,), "spm" if layout == "spm" else "psm")
    prompt, written = lay_out(example, vocabulary)
    length = len(vocabulary.encode(line)) + 1
    return prompt.ids + written.ids[:-length], Tokens.all_learned(written.ids[-length:])
