"""Measures the losses on held-out text: left to right, and over middles with and without fragments."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from random import Random

import torch
from torch import Tensor

from inference.training.corpus.corpus import Corpus
from inference.training.corpus.vocabulary import Vocabulary
from inference.training.examples.examples import FimExample, cut_example, lay_out
from inference.training.options import ExampleOptions
from inference.training.run.modeling import token_losses

_CUTS = ExampleOptions(
    fim_rate=1, efim_rate=1, spm_rate=0, fragment_rate=1, context_fragment_rate=0, max_fragments=2, open_end_rate=0
)
_BATCH = 8
_FAR_WINDOW = 3072
_TRIES = 100


@dataclass(frozen=True)
class HeldOutLosses:
    """Mean losses over the held-out split.

    Attributes:
        left_to_right: nats per token, in windows of 512 tokens.
        left_to_right_bits: the same in bits per byte.
        far: nats per token beyond position 512 in windows of 3,072; None if no document is that long.
        fragments: nats per byte of middle, with the text before and after the cursor tokenized separately.
        whole: nats per byte of the same middles, each tokenized as one fragment.
        stops: share of the middles after which `<|endoftext|>` is the most probable token, with fragments.
    """

    left_to_right: float
    left_to_right_bits: float
    far: float | None
    fragments: float
    whole: float
    stops: float


@torch.inference_mode()
def evaluate(
    model: torch.nn.Module, corpus: Corpus, vocabulary: Vocabulary, *, samples: int = 384, window: int = 512
) -> HeldOutLosses:
    """Measure on `samples` windows and `samples` examples, which are fixed for a corpus."""
    rng = Random("held out")
    texts = [random_lines(corpus, rng, window * 5) for _ in range(samples)]
    ids = [vocabulary.encode(text)[:window] for text in texts]
    nats = sum(float(losses.sum()) for losses, _ in _losses(model, ids))
    num_bytes = sum(len(vocabulary.decode(sequence[1:]).encode()) for sequence in ids)
    examples = [cut_example(random_lines(corpus, rng, window * 4), _CUTS, rng) for _ in range(samples)]
    fragments, stops = middle_loss(model, examples, vocabulary)
    joined = [replace(example, middle=("".join(example.middle),)) for example in examples]
    whole, _ = middle_loss(model, joined, vocabulary)
    tokens = sum(len(sequence) - 1 for sequence in ids)
    bits = nats / num_bytes / math.log(2)
    far = _far_loss(model, corpus, vocabulary, rng, samples=-(-samples // 12), beyond=window)
    return HeldOutLosses(nats / tokens, bits, far, fragments, whole, stops)


def _far_loss(
    model: torch.nn.Module, corpus: Corpus, vocabulary: Vocabulary, rng: Random, *, samples: int, beyond: int
) -> float | None:
    """Nats per token at positions from `beyond` on in long windows, each from a different document."""
    order = rng.sample(range(len(corpus)), len(corpus))
    encoded = (vocabulary.encode(corpus.document(index)) for index in order)
    windows = list(islice((ids[:_FAR_WINDOW] for ids in encoded if len(ids) >= _FAR_WINDOW), samples))
    means = [float(_losses(model, [ids])[0][0][beyond:].mean()) for ids in windows]
    return sum(means) / len(means) if means else None


def middle_loss(
    model: torch.nn.Module, examples: Sequence[FimExample], vocabulary: Vocabulary, batch: int = _BATCH
) -> tuple[float, float]:
    """Nats per byte over middles and their end, and the share of predicted ends; `batch` examples at a time."""
    laid_out = [lay_out(example, vocabulary) for example in examples]
    ids = [prompt + middle for prompt, middle in laid_out]
    nats, stops = 0.0, 0
    for (prompt, _), (losses, likeliest) in zip(laid_out, _losses(model, ids, batch), strict=True):
        nats += float(losses[len(prompt) - 1 :].sum())
        stops += int(likeliest[-1]) == vocabulary.markers.end_of_text
    num_bytes = sum(len("".join(example.middle).encode()) for example in examples)
    return nats / num_bytes, stops / len(ids)


def _losses(model: torch.nn.Module, ids: Sequence[list[int]], batch: int = _BATCH) -> list[tuple[Tensor, Tensor]]:
    """Loss and most probable token at all tokens but the first, float32 and int64 [T - 1], of each sequence."""
    results: dict[int, tuple[Tensor, Tensor]] = {}
    order = sorted(range(len(ids)), key=lambda index: len(ids[index]))
    device = next(model.parameters()).device
    for first in range(0, len(order), batch):
        rows = order[first : first + batch]
        longest = len(ids[rows[-1]])
        # Padding is on the right, where causal attention hides it from the measured tokens.
        padded = torch.tensor([ids[index] + [0] * (longest - len(ids[index])) for index in rows], device=device)
        losses, likeliest = token_losses(model, padded)
        for row, index in enumerate(rows):
            results[index] = losses[row, : len(ids[index]) - 1].cpu(), likeliest[row, : len(ids[index]) - 1].cpu()
    return [results[index] for index in range(len(ids))]


def random_lines(corpus: Corpus, rng: Random, size: int) -> str:
    """Whole lines of about `size` bytes from a random position; fewer if all documents are short."""
    text = ""
    for _ in range(_TRIES):
        document = rng.randrange(len(corpus))
        length = int(corpus.boundaries[document + 1] - corpus.boundaries[document])
        start = rng.randint(0, max(0, length - size))
        text = corpus.lines_between(document, start, start + size)
        if len(text) >= min(size, 200):
            break
    return text
