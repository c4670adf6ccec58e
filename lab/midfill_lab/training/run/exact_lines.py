"""Measures how many held-out lines a model would write exactly: by one forward each, as its most probable tokens.

A greedy completion is exact if and only if each of its tokens is the most probable one after the true ones before it.
"""

from random import Random

import torch

from midfill_lab.training.corpus.corpus import Corpus
from midfill_lab.training.corpus.vocabulary import Vocabulary
from midfill_lab.training.examples.examples import FimExample, Layout, Tokens, lay_out
from midfill_lab.training.run.evaluation import Packed, Shape, pack, predict

LAYOUTS: tuple[Layout, ...] = ("efim", "psm", "spm")
BYTES_BEFORE, BYTES_BEHIND = 700, 300
LINES_SINCE_ANCHOR = 6
LEAST_CHARS = 8
_TRIES = 50


class ExactLines:
    """Held-out lines, each in all layouts, in batches as large as those of training: nothing is compiled anew."""

    def __init__(self, corpus: Corpus, vocabulary: Vocabulary, lines: int, shape: Shape) -> None:
        """Choose `lines` lines of code at random, the same ones every time, with what is around them."""
        rng = Random("exact lines")
        chosen = [example for _ in range(lines) if (example := _line(corpus, rng))]
        self.lines = len(chosen)
        self._packed: dict[Layout, Packed] = {
            layout: pack([_laid_out(layout, *parts, vocabulary) for parts in chosen], shape, full=True)
            for layout in LAYOUTS
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
        if len(code) >= LEAST_CHARS and not code.startswith(("#", "//", "*", "/*", '"""')):
            before = corpus.lines_between(document, max(0, start - first - BYTES_BEFORE), start - first)
            behind = corpus.lines_between(document, end - first, min(last - first, end - first + BYTES_BEHIND))
            return before + text[: len(text) - len(code)], code, "\n" + behind
    return None


def _laid_out(layout: Layout, before: str, line: str, behind: str, vocabulary: Vocabulary) -> tuple[list[int], Tokens]:
    """The tokens in front of a line, and those of the line with the end; in EFIM lines above it are the increment."""
    starts = [0, *(place + 1 for place, char in enumerate(before) if char == "\n")]
    anchor = starts[max(0, len(starts) - 1 - LINES_SINCE_ANCHOR)] if layout == "efim" else len(before)
    middle = tuple(part for part in (before[anchor:], line) if part)
    prefix = tuple(part for part in (before[:anchor],) if part)
    example = FimExample(prefix, middle, (behind,), "spm" if layout == "spm" else "psm")
    prompt, written = lay_out(example, vocabulary)
    length = len(vocabulary.encode(line)) + 1
    return prompt.ids + written.ids[:-length], Tokens.all_learned(written.ids[-length:])
