"""A run of a few seconds, and its command line for a process that a test can kill."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from inference.training.checkpoints import RunFolder
from inference.training.corpus import Corpus
from inference.training.options import ModelShape, Stage, TrainingOptions
from inference.training.trainer import StepReport, Trainer
from inference.training.vocabulary import load_vocabulary

TINY = ModelShape(layers=2, hidden=32, intermediate=64, heads=2, kv_heads=1, head_dim=16, positions=256)
OPTIONS = TrainingOptions(
    shape=TINY,
    stages=(Stage(64, 0.5), Stage(128, 0.5)),
    batch_tokens=256,
    max_steps=8,
    compile=False,
)
AFTER_EVERY_STEP = 1e-9  # minutes between checkpoints


def train(corpus: Path, run: Path, options: TrainingOptions = OPTIONS) -> list[StepReport]:
    """Run or resume in this process; the reports of the steps that were made."""
    folder = RunFolder(run)
    folder.claim(corpus, options)
    reports: list[StepReport] = []
    trainer = Trainer(folder, Corpus(corpus, "train"), load_vocabulary(corpus / "tokenizer.json"), options)
    trainer.run(reports.append, lambda _: None)
    return reports


def steps(number: int, checkpoint_minutes: float = OPTIONS.checkpoint_minutes) -> TrainingOptions:
    """A run of so many steps."""
    return replace(OPTIONS, max_steps=number, checkpoint_minutes=checkpoint_minutes)


def main() -> None:
    """Train slowly enough to be killed in the middle: print each step, and wait a moment after it."""
    import time

    import torch

    torch.set_num_threads(1)
    corpus, run = map(Path, sys.argv[1:])
    folder = RunFolder(run)
    options = steps(8, AFTER_EVERY_STEP)
    folder.claim(corpus, options)
    trainer = Trainer(folder, Corpus(corpus, "train"), load_vocabulary(corpus / "tokenizer.json"), options)

    def report(step: StepReport) -> None:
        sys.stdout.write(f"{step.progress.step}\n")
        sys.stdout.flush()
        time.sleep(0.1)

    trainer.run(report, lambda _: None)


if __name__ == "__main__":
    main()
