"""Owns the training loop, which can be stopped and resumed at any step."""

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from midfill_lab.training.allocator import return_freed_memory
from midfill_lab.training.corpus.vocabulary import Vocabulary
from midfill_lab.training.errors import OptionError
from midfill_lab.training.examples.shards import WindowMakers, WindowSource
from midfill_lab.training.examples.windows import Window
from midfill_lab.training.optimization.optimizers import (
    MasterWeights,
    OwnWeights,
    Trained,
    build_optimizers,
    peaks_of,
    restore_peaks,
    set_rates,
)
from midfill_lab.training.optimization.schedule import TrainingProgress, rate_factor, stage_at
from midfill_lab.training.options import TrainingOptions
from midfill_lab.training.run.batches import Batch
from midfill_lab.training.run.checkpoints import RunFolder, State
from midfill_lab.training.run.initial_model import start_model
from midfill_lab.training.run.modeling import (
    compile_layers,
    part_tokens,
    summed_loss,
    token_loss,
    uncompile_layers,
    without_adapters,
)
from midfill_lab.training.run.processes import Processes

TRIM_EVERY = 25
"""Steps after which the memory that no block fitted into goes back to the system."""
SPARED_CORES = 2
"""Beside a GPU, cores for the training loop and the driver; the others make windows."""


@dataclass(frozen=True)
class StepReport:
    """One optimizer step, for the progress display and the log.

    Attributes:
        loss: nats per token.
        waited: seconds that it waited for its windows.
    """

    progress: TrainingProgress
    share: float
    window: int
    loss: float
    rate_factor: float
    waited: float


class Trainer:
    """One run in one folder: builds the model, resumes from the newest checkpoint, and trains to the end.

    Several processes share the windows of every step. The result is the same up to rounding, and so is the checkpoint,
    which any number of processes can resume.
    """

    def __init__(
        self,
        folder: RunFolder,
        corpus: Path,
        vocabulary: Vocabulary,
        options: TrainingOptions,
        processes: Processes,
    ) -> None:
        """Build everything, and load the newest checkpoint of a folder claimed for these options.

        corpus: the folder of a corpus, with the `tokenizer.json` of `vocabulary`.

        Raises:
            OptionError: the windows of a step cannot be shared equally among the processes.
            CheckpointError: the newest checkpoint is of another version.
        """
        self._folder, self._options, self._processes = folder, options, processes
        self._source = WindowSource(corpus, options.examples, options.seed, vocabulary.format.name)
        self._shares = [_share(options.batch_tokens // stage.window, processes.count) for stage in options.stages]
        self._parts = options.gradient_accumulation_steps
        torch.manual_seed(options.seed)
        self.model = start_model(options, vocabulary)
        nn.Module.to(self.model, processes.device)
        if options.mixed_precision is None:
            self.trained: Trained = MasterWeights(self.model, options.quantization)
            nn.Module.to(self.model, torch.bfloat16)
        else:
            self.trained = OwnWeights(self.model)
        self._optimizers = build_optimizers(self.trained.named, options)
        self._summed: Callable[..., Tensor] = summed_loss
        if options.compile:
            self._compile()
        self.progress = TrainingProgress()
        self._resume()
        self._round()

    def run(
        self,
        report: Callable[[StepReport], None],
        checkpointed: Callable[[TrainingProgress], None],
        is_stopped: Callable[[], bool] = lambda: False,
        makers: WindowMakers | None = None,
    ) -> None:
        """Train to the end of the run, or until any process is stopped.

        Calls `report` with every step, and `checkpointed` with every checkpoint, in the process that wrote it. The
        windows are those of `makers`, which the caller closes, or of makers of the run's own.
        """
        with ExitStack() as own:
            self._run(report, checkpointed, is_stopped, makers or own.enter_context(self.makers()))

    def _run(
        self,
        report: Callable[[StepReport], None],
        checkpointed: Callable[[TrainingProgress], None],
        is_stopped: Callable[[], bool],
        makers: WindowMakers,
    ) -> None:
        began, saved_at = time.monotonic() - self.progress.seconds, self.progress.seconds
        stopped = False
        ahead: dict[int, Iterator[Window]] = {}
        while not stopped and (share := self.progress.share(self._options)) < 1:
            stage = stage_at(share, self._options.stages)
            # Those of the next stage are begun now too: at a change of stages nothing waits.
            for near in dict.fromkeys((stage, min(stage + 1, len(self._shares) - 1))):
                if self._length(near) not in ahead:
                    ahead[self._length(near)] = self._windows(makers, near)
            windows = ahead[self._length(stage)]
            while not stopped and share < 1 and stage_at(share, self._options.stages) == stage:
                asked = time.monotonic()
                made = next(windows)
                step, stopped = self._step(made, stage, share, began, is_stopped, time.monotonic() - asked)
                report(step)
                share = self.progress.share(self._options)
                if self.progress.seconds - saved_at >= 60 * self._options.checkpoint_minutes:
                    self._save(checkpointed)
                    saved_at = self.progress.seconds
        if math.isfinite(self._options.checkpoint_minutes):
            self._save(checkpointed)

    def makers(self) -> WindowMakers:
        """Makers of this run's windows; each stage's first ones are made when the run asks for them."""
        processes = self._options.window_processes
        if processes is None:
            on_cpu = self._processes.device.type == "cpu"
            processes = 0 if on_cpu else max(1, (os.cpu_count() or 1) // self._processes.count - SPARED_CORES)
        return WindowMakers(self._source, processes)

    def seconds_per_step(self) -> float:
        """Estimated seconds per step, from computing a part of one twice without an update."""
        stage = stage_at(self.progress.share(self._options), self._options.stages)
        windows = self._source.windows(self._length(stage))
        share = self._shares[stage]
        made = [windows[index] for index in range(-(-share // self._parts))]
        seconds = 0.0
        for _ in range(2):  # the first pass allocates memory and compiles the model
            began = time.monotonic()
            self._processes.scaler.scale(self._loss(_stacked(made))).backward()  # type: ignore[no-untyped-call]
            seconds = time.monotonic() - began
            for parameter in self.model.parameters():
                parameter.grad = None
        return seconds * min(self._parts, share)

    def precision(self) -> AbstractContextManager[object]:
        """The autocast that the options ask for; the model is to be called within it."""
        return self._processes.precision()

    def end_in(self, minutes: float) -> None:
        """Set the length of the run by the clock, from its beginning."""
        self._options = replace(self._options, minutes=minutes)

    def stop_compiling(self) -> None:
        """Go on with the layers as they are: where compiled ones are slower, or not to be had."""
        uncompile_layers(self.model)
        self._summed = summed_loss

    def publishable(self) -> nn.Module:
        """The model with full precision weights, to be exported; it cannot be trained further."""
        self.trained.restore(self.model)
        return self.model

    def _compile(self) -> None:
        if self._processes.device.type != "cpu":
            compile_layers(self.model)
            self._summed = torch.compile(summed_loss, dynamic=False)
            return
        # What comes before the output layer, which sees another number of tokens in every step.
        base = without_adapters(self.model)
        getattr(base, "model", base).compile(dynamic=False)

    def _resume(self) -> None:
        peaks = peaks_of(self._optimizers)
        if resumed := self._folder.resume(self._processes.device):
            state, self.progress = resumed
            self.trained.load(state.weights)
            for optimizer, loaded in zip(self._optimizers, state.optimizers, strict=True):
                optimizer.load_state_dict(loaded)
            self._processes.scaler.load_state_dict(state.scaler)
        restore_peaks(self._optimizers, peaks)

    def _round(self) -> None:
        """Begin to round the weights, once the last part of the run has come."""
        share = self.progress.share(self._options)
        if self._options.quantization is not None and share >= 1 - self._options.quantized_share:
            self.trained.begin_rounding()

    def _loss(self, window: Window) -> Tensor:
        """The summed loss of windows."""
        device = self._processes.device
        batch = Batch.of(window, 1 if self._summed is summed_loss else part_tokens(device))
        with self.precision():
            return token_loss(self.model, batch.to(device), self._summed)

    def _step(
        self,
        windows: Window,
        stage: int,
        share: float,
        began: float,
        is_stopped: Callable[[], bool],
        waited: float,
    ) -> tuple[StepReport, bool]:
        """One optimizer step on this process's [B, T] of the step's windows; and whether to stop after it."""
        self._round()
        # At the beginning of the first step the rate is 0.
        middle = min(1.0, share + 0.5 * self._share_of_a_step())
        factor = rate_factor(middle, self.progress.step, self._options)
        set_rates(self._optimizers, factor)
        loss = self._backward(windows)
        parameters = list(self.trained.named.values())
        self._processes.average_gradients(parameters)
        scaler = self._processes.scaler
        for optimizer in self._optimizers:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(parameters, self._options.clip)
        for optimizer in self._optimizers:
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()
        self.trained.write_back()
        mean_loss, seconds, stopped = self._processes.mean(loss, time.monotonic() - began, is_stopped())
        self._advance(stage, seconds)
        if self.progress.step % TRIM_EVERY == 0:
            return_freed_memory()
        return StepReport(self.progress, share, windows.ids.shape[1], mean_loss, factor, waited), stopped > 0

    def _share_of_a_step(self) -> float:
        """The share of the run that a step takes; by the clock, one as long as those so far."""
        if self._options.minutes is None:
            return 1 / self._options.max_steps
        return self.progress.share(self._options) / max(1, self.progress.step)

    def _backward(self, windows: Window) -> float:
        """Compute the gradients of the mean loss over the learned tokens of all processes; returns it, of these.

        What does not fit into the device's memory is computed in more parts, from then on.
        """
        # Dropout is a pure function of seed, step and process too: a resumed run continues as if uninterrupted.
        torch.manual_seed(hash((self._options.seed, self.progress.step, self._processes.rank)))
        (mean_learned,) = self._processes.mean(float((windows.learned & ~windows.begins).sum()))
        while True:
            try:
                return self._accumulate(windows, max(mean_learned, 1))
            except torch.OutOfMemoryError:
                if self._parts >= len(windows.ids):
                    raise
            self._parts *= 2
            for parameter in (*self.model.parameters(), *self.trained.named.values()):
                parameter.grad = None
            torch.cuda.empty_cache()

    def _accumulate(self, windows: Window, learned: float) -> float:
        loss_sum = torch.zeros((), device=self._processes.device)
        size = -(-len(windows.ids) // self._parts)
        for start in range(0, len(windows.ids), size):
            loss = self._loss(Window._make(field[start : start + size] for field in windows)) / learned
            self._processes.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            self.trained.take_gradients()
            loss_sum += loss.detach()
        return loss_sum.item()

    def _advance(self, stage: int, seconds: float) -> None:
        window = self._length(stage)
        consumed = self.progress.windows.get(window, 0) + self._options.batch_tokens // window
        self.progress = replace(
            self.progress,
            step=self.progress.step + 1,
            tokens=self.progress.tokens + self._options.batch_tokens,
            seconds=seconds,
            windows={**self.progress.windows, window: consumed},
        )

    def _length(self, stage: int) -> int:
        return self._options.stages[stage].window

    def _windows(self, makers: WindowMakers, stage: int) -> Iterator[Window]:
        """The stage's remaining windows: this process's share of each step, [B, T]."""
        length, share = self._length(stage), self._shares[stage]
        first = self.progress.windows.get(length, 0) + share * self._processes.rank
        return makers.sequence(length, first, share, share * self._processes.count)

    def _save(self, checkpointed: Callable[[TrainingProgress], None]) -> None:
        if self._processes.is_main:
            weights = {name: parameter.detach() for name, parameter in self.trained.named.items()}
            optimizers = [each.state_dict() for each in self._optimizers]
            self._folder.save(State(weights, optimizers, self._processes.scaler.state_dict()), self.progress)
            checkpointed(self.progress)
        self._processes.wait()


def _stacked(windows: list[Window]) -> Window:
    return Window._make(map(np.stack, zip(*windows, strict=True)))


def _share(windows: int, processes: int) -> int:
    """Number of windows per process and step; OptionError if the windows cannot be shared equally."""
    if windows % processes:
        raise OptionError(f"{windows} windows per step cannot be divided equally among {processes} processes")
    return windows // processes
