"""Times the steps that token healing adds to a keystroke: finding the boundary, the allowed tokens, the choice.

    python bench/healing.py VOCABULARY/tokenizer.json [--rounds 5] [--json FILE]

Types a line, character by character, and times for each keystroke the three steps that healing adds on the CPU; the
choice among allowed tokens and the choice among all tokens run in turns on the same logits. Prints medians in
microseconds, and the number of healed tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Annotated

import torch
import typer
from figures import JsonFile, write
from rich.console import Console

from inference.backends.sampling import greedy_choices
from inference.text.healing import Healer
from inference.text.tokenization import read_tokenizer

LINE = "        return self.compute_something(first_argument, 'café', limit=128) + other_values[index]"


def microseconds(step: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    step()
    return (time.perf_counter() - started) * 1e6


def main(
    vocabulary: Annotated[Path, typer.Argument(help="A tokenizer.json.")],
    rounds: Annotated[int, typer.Option(help="Number of times to type the line.")] = 5,
    json_file: JsonFile = None,
) -> None:
    """Time the steps of token healing."""
    torch.set_num_threads(1)
    tokenizer = read_tokenizer(vocabulary)
    started = time.perf_counter()
    healer = Healer(tokenizer)
    build_ms = (time.perf_counter() - started) * 1e3
    logits = torch.randn(1, tokenizer.vocabulary_size, generator=torch.Generator().manual_seed(0))
    times: dict[str, list[float]] = {"boundary": [], "allowed": [], "choice": [], "choice without healing": []}
    left = []
    for _ in range(rounds):
        for end in range(1, len(LINE)):
            increment = LINE[:end]
            times["boundary"].append(microseconds(lambda text=increment: healer.heal(text)))
            healed = healer.heal(increment)
            left.append(len(tokenizer.encode(increment)) - len(healed.token_ids))
            if not healed.typed:
                continue
            times["allowed"].append(microseconds(lambda typed=healed.typed: healer.vocabulary.allowed(typed)))
            allowed = healer.vocabulary.allowed(healed.typed)
            times["choice"].append(microseconds(lambda ids=allowed: greedy_choices(logits, ids)))
            times["choice without healing"].append(microseconds(lambda: greedy_choices(logits)))
    figures = {
        "vocabulary": tokenizer.vocabulary_size,
        "build_ms": build_ms,
        "median_us": {name: median(values) for name, values in times.items()},
        "tokens_left_to_healing": {"mean": mean(left), "most": max(left)},
    }
    Console().print(figures)
    write(json_file, figures)


if __name__ == "__main__":
    typer.run(main)
