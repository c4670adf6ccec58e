"""A run of a few seconds, and its command line for a process that a test can kill."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from midfill_lab.training.machine import open_device
from midfill_lab.training.options import ModelSize, Stage, TrainingOptions
from midfill_lab.training.trainer import RunFolder, StepReport, Trainer
from midfill_lab.training.vocabulary import load_vocabulary

TINY = ModelSize(layers=2, hidden=32, intermediate=64, heads=2, kv_heads=1, head_dim=16, positions=256)
OPTIONS = TrainingOptions(shape=TINY, stages=(Stage(64, 0.5), Stage(128, 0.5)), batch_tokens=256, max_steps=8, compile=False)
AFTER_EVERY_STEP = 1e-9  # minutes between checkpoints


def train(
    corpus: Path,
    run: Path,
    options: TrainingOptions = OPTIONS,
    heard: Callable[[StepReport], None] | None = None,
    *,
    change_recipe: bool = False,
) -> list[StepReport]:
    """Run or resume the reports of the steps that were made."""
    folder = RunFolder(run)
    folder.claim(corpus, options, change_recipe=change_recipe)
    reports: list[StepReport] = []

    def report(step: StepReport) -> None:
        reports.append(step)
        if heard is not None:
            heard(step)

    vocabulary = load_vocabulary(corpus / "tokenizer.json")
    trainer = Trainer(folder, corpus, vocabulary, options, open_device(cpu=True))
    trainer.run(report, lambda _: None)
    return reports


def steps(number: int, checkpoint_minutes: float = OPTIONS.checkpoint_minutes) -> TrainingOptions:
    """A run of so many steps."""
    return replace(OPTIONS, max_steps=number, checkpoint_minutes=checkpoint_minutes)


def main(corpus: str, run: str, number: str = "8", last: str = "") -> None:
    """Train, and print each step with its loss; after step `last` wait to be killed."""
    import torch

    torch.set_num_threads(1)

    def tell(step: StepReport) -> None:
        sys.stdout.write(f"{step.progress.step} {step.loss}\n")
        sys.stdout.flush()
        if str(step.progress.step) == last:
            sys.stdin.read()

    train(Path(corpus), Path(run), steps(int(number), AFTER_EVERY_STEP), tell)


if __name__ == "__main__":
    main(*sys.argv[1:])
