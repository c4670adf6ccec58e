"""Measures how fast training windows are made: by a processor's seconds in this process, by the clock in several.

    python bench/training_windows.py CORPUS [--window 1024,4096] [--tokens 200000] [--processes 0,2]

CORPUS is a folder of `python -m midfill_lab.recipe corpus` with a `tokenizer.json`. The recipe is that of
bench/gpu_train.py. "first" has what is read and searched once for all windows, such as definitions; "later" has not.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from gpu_train import EXAMPLES

from midfill_lab.training.options import ExampleOptions
from midfill_lab.training.windows import AHEAD, WindowMakers, WindowSource

SHARD_TOKENS = 32_768


def in_this_process(source: WindowSource, length: int, tokens: int) -> tuple[float, float]:
    """Tokens a second of a processor, at first and later."""
    windows = source.windows(length)
    speeds: list[float] = []
    for _ in range(2):
        began = time.process_time()
        for index in range(tokens // length):
            _ = windows[index]
        speeds.append(tokens // length * length / (time.process_time() - began))
    return speeds[0], speeds[1]


def in_processes(source: WindowSource, length: int, tokens: int, processes: int) -> float:
    """Tokens a second of the clock, once all processes have begun and the shards that they made ahead are used up."""
    with WindowMakers(source, processes) as makers:
        size = SHARD_TOKENS // length
        sequence = makers.sequence(length, 0, size, size)
        for _ in range(AHEAD * processes):
            next(sequence)
        began = time.monotonic()
        made = sum(next(sequence).ids.size for _ in range(max(1, tokens // SHARD_TOKENS)))
        return made / (time.monotonic() - began)


def main() -> None:
    """Print a line for each window and number of processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--window", default="1024,4096")
    parser.add_argument("--tokens", type=int, default=200_000)
    parser.add_argument("--processes", default="0,2")
    given = parser.parse_args()
    source = WindowSource(given.corpus, ExampleOptions(**EXAMPLES), seed=0)
    for length in map(int, given.window.split(",")):
        first, later = in_this_process(source, length, given.tokens)
        sys.stdout.write(f"windows of {length}: first {first:,.0f}, later {later:,.0f} tokens per second of a core\n")
        for processes in filter(None, map(int, given.processes.split(","))):
            speed = in_processes(source, length, given.tokens, processes)
            sys.stdout.write(f"windows of {length}, {processes} processes: {speed:,.0f} tokens per second\n")


if __name__ == "__main__":
    main()
