"""A training from start to end: data, model, steps, held-out losses, and the model folder."""

from __future__ import annotations

import math
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from inference.checkpoints.checkpoint import find_checkpoint
from midfill_lab.training.arguments import TrainArguments
from midfill_lab.training.corpus import Corpus
from midfill_lab.training.data import Data, DataOptions, prepare_data
from midfill_lab.training.losses import format_losses
from midfill_lab.training.machine import Device, open_device, stops_on_signals
from midfill_lab.training.optimizers import TrainingProgress
from midfill_lab.training.options import OptionError, TrainingOptions
from midfill_lab.training.publish import publish
from midfill_lab.training.report import ProgressDisplay, card, data_lines, losses_lines, losses_table, plan_lines
from midfill_lab.training.trainer import RunFolder, StepReport, Trainer
from midfill_lab.training.windows import Windows, bytes_per_token

MODEL = "model"
MAX_EVALUATION_WINDOW = 256


@dataclass(frozen=True, slots=True)
class Request:
    """The user's request for a training; the number of steps in `training` is still to be worked out."""

    output: Path
    data: DataOptions
    training: TrainingOptions
    arguments: TrainArguments


def train(request: Request, console: Console) -> bool:
    """Train, or resume; True if the model is in the output's folder `model`, False if the run was stopped.

    Raises:
        BadInput: a part of the request cannot be done.
    """
    _check_window(request.training)
    device = open_device(request.training.mixed_precision, cpu=request.arguments.cpu)
    run = _Run(request, device, console)
    try:
        finished = run.train()
        if finished:
            run.export()
    except torch.OutOfMemoryError as error:
        raise OptionError(
            "out of memory on the device: try more --gradient-accumulation-steps, --gradient-checkpointing, a"
            f" smaller --window, or --lora ({error})"
        ) from error
    return finished


class _Run:
    """A training of prepared data, in its folder."""

    def __init__(self, request: Request, device: Device, console: Console) -> None:
        self._request, self._console = request, console
        self._folder = RunFolder(request.output)
        self._data = prepare_data(request.output, request.data)
        self._options, self._epochs = _with_steps(request, self._data)
        self._folder.claim(self._data.folder, self._options, change_recipe=request.arguments.change_recipe)
        self._trainer = Trainer(self._folder, self._data.folder, self._data.vocabulary, self._options, device)
        self._measured_at = time.monotonic()

    def train(self) -> bool:
        """Run the remaining steps; False if the run was stopped."""
        tokens_per_byte = 1 / bytes_per_token(Corpus(self._data.folder, "train"), self._data.vocabulary)
        for line in data_lines(self._data, tokens_per_byte):
            self._console.print(line, highlight=False, soft_wrap=True)
        if self._trainer.progress.step == 0:
            self._measure(self._trainer.progress)
        else:
            self._console.print(f"Continuing after step {self._trainer.progress.step:,}.")
        self._tell_plan()
        display = ProgressDisplay(self._console)

        def report(step: StepReport) -> None:
            display.step(step)
            self._folder.append_log(asdict(step))

        deadline = math.inf if self._request.arguments.hours is None else time.monotonic() + 3600 * self._request.arguments.hours
        with display, stops_on_signals(self._tell_stopping) as is_signalled:

            def is_stopped() -> bool:
                return is_signalled() or time.monotonic() >= deadline

            def checkpointed(progress: TrainingProgress) -> None:
                display.checkpointed(progress)
                is_last = progress.share(self._options) >= 1
                if is_last or not (is_stopped() or self._was_measured_lately()):  # stopping waits for nothing else
                    self._measure(progress)

            self._trainer.run(report, checkpointed, is_stopped)
        finished = self._trainer.progress.share(self._options) >= 1
        if not finished:
            self._console.print(f"Stopped and saved. To continue, run: {_command()}", soft_wrap=True)
        return finished

    def export(self) -> None:
        """Write the model folder and print the losses."""
        before, after = self._measured()
        output = self._request.output / MODEL
        name = self._request.output.name
        text = card(name, self._data, self._options, self._trainer.progress, _command(), (before, after))
        publish(self._trainer.publishable(), self._data.vocabulary, self._data.tokenizer, self._options, output, text)
        self._console.print(losses_table(before, after))
        self._console.print(f"Model: {output}. To use it, run: midfill lsp --model {output}", soft_wrap=True)

    def _tell_stopping(self) -> None:
        self._console.print(
            "Stopping after this step. Press Ctrl-C again to stop now and lose the steps since the last checkpoint."
        )

    def _tell_plan(self) -> None:
        parameters = list(self._trainer.model.parameters())
        learning = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
        # By the clock, an estimate would only take its time.
        seconds = self._trainer.seconds_per_step() if self._options.minutes is None else None
        total = sum(parameter.numel() for parameter in parameters)
        for line in plan_lines(self._options, learning, total, self._epochs, seconds):
            self._console.print(line, highlight=False, soft_wrap=True)

    def _measure(self, progress: TrainingProgress) -> None:
        """Log the held-out losses."""
        options = self._options
        window = min(options.stages[0].window, MAX_EVALUATION_WINDOW)
        batch = options.batch_tokens // options.stages[0].window // options.gradient_accumulation_steps
        held_out, vocabulary = Corpus(self._data.folder, "held_out"), self._data.vocabulary
        samples = self._request.arguments.evaluation_samples
        with self._trainer.precision():
            losses = format_losses(self._trainer.model, held_out, vocabulary, samples=samples, window=window, batch=max(1, batch))
        self._measured_at = time.monotonic()
        measured = {"step": progress.step, "tokens": progress.tokens, "seconds": progress.seconds}
        self._folder.append_log({**measured, "held_out": [asdict(loss) for loss in losses]})
        for line in losses_lines(progress.step, losses):
            self._console.print(line, highlight=False, soft_wrap=True)

    def _was_measured_lately(self) -> bool:
        return time.monotonic() - self._measured_at < 60 * self._request.arguments.evaluation_minutes

    def _measured(self) -> tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]:
        """The held-out losses before and after, from the log."""
        losses = [record["held_out"] for record in self._folder.logged() if "held_out" in record]
        return losses[0], losses[-1]


def _check_window(options: TrainingOptions) -> None:
    """OptionError for a window that is longer than the context of the model to start from."""
    if options.start is None:
        return  # the options check it themselves
    window = max(stage.window for stage in options.stages)
    most = find_checkpoint(options.start).architecture.max_positions
    if window > most:
        raise OptionError(f"--window {window} is too long: the context of {options.start} is {most} tokens")


def _with_steps(request: Request, data: Data) -> tuple[TrainingOptions, float]:
    """The options with the number of steps, and how many epochs those are; none of both by the clock."""
    options = request.training
    if options.minutes is not None:
        return options, 0.0
    window = options.stages[0].window
    windows = Windows(
        Corpus(data.folder, "train"), data.vocabulary, options.examples, length=window, seed=options.seed
    ).windows_per_epoch
    per_step = options.batch_tokens // window
    steps = request.arguments.steps or max(1, math.ceil(request.arguments.epochs * windows / per_step))
    return replace(options, max_steps=steps), steps * per_step / windows


def _command() -> str:
    return shlex.join(["midfill", *sys.argv[1:]])
