"""Owns the training loop, which can be stopped and resumed at any step."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import count

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import set_seed  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.utils.data import default_collate

from inference.training.allocator import return_freed_memory
from inference.training.corpus.corpus import Corpus
from inference.training.corpus.vocabulary import Vocabulary
from inference.training.errors import OptionError
from inference.training.examples.windows import Window, Windows
from inference.training.optimization.optimizers import (
    MasterWeights,
    OwnWeights,
    Trained,
    build_optimizers,
    peaks_of,
    restore_peaks,
    set_rates,
)
from inference.training.optimization.schedule import TrainingProgress, rate_factor, stage_at
from inference.training.options import TrainingOptions
from inference.training.run.checkpoints import RunFolder, leave_out_frozen
from inference.training.run.initial_model import start_model
from inference.training.run.modeling import count_learned, token_loss, without_adapters
from inference.training.run.processes import average_gradients

TRIM_EVERY = 25
"""Steps after which the memory that no block fitted into goes back to the system."""


@dataclass(frozen=True)
class StepReport:
    """One optimizer step, for the progress display and the log; `loss` is in nats per token."""

    progress: TrainingProgress
    share: float
    window: int
    loss: float
    rate_factor: float


class Trainer:
    """One run in one folder: builds the model, resumes from the newest checkpoint, and trains to the end.

    Several processes share the windows of every step. The result is the same up to rounding, and so is the checkpoint,
    which any number of processes can resume.
    """

    def __init__(
        self,
        folder: RunFolder,
        corpus: Corpus,
        vocabulary: Vocabulary,
        options: TrainingOptions,
        accelerator: Accelerator,
    ) -> None:
        """Build everything, and load the newest checkpoint of a folder claimed for these options.

        Raises:
            OptionError: the windows of a step cannot be shared equally among the processes.
        """
        self._folder, self._corpus, self._vocabulary, self._options = folder, corpus, vocabulary, options
        self._accelerator = accelerator
        for stage in options.stages:
            _share(options.batch_tokens // stage.window, accelerator.num_processes)
        set_seed(options.seed)
        model = start_model(options, vocabulary)
        nn.Module.to(model, accelerator.device)
        if options.mixed_precision is None:
            self._trained: Trained = MasterWeights(model, options.quantization)
            accelerator.register_for_checkpointing(self._trained)
            nn.Module.to(model, torch.bfloat16)
        else:
            self._trained = OwnWeights(model)
        self.parameters = list(self._trained.named.values())
        optimizers = build_optimizers(self._trained.named, options)
        peaks = peaks_of(optimizers)
        # evaluation_mode prevents the wrapper for distribution: see average_gradients.
        self.model = accelerator.prepare_model(model, evaluation_mode=True)
        self._optimizers = [accelerator.prepare(optimizer) for optimizer in optimizers]
        if options.compile:
            _compile(model)
        if options.lora is not None:
            accelerator.register_save_state_pre_hook(leave_out_frozen)
        self.progress = folder.resume(accelerator, partial=options.lora is not None) or TrainingProgress()
        restore_peaks(self._optimizers, peaks)
        self._round()

    def run(
        self,
        report: Callable[[StepReport], None],
        checkpointed: Callable[[TrainingProgress], None],
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Train to the end of the run, or until any process is stopped.

        Calls `report` with every step, and `checkpointed` with every checkpoint, in the process that wrote it.
        """
        saved_at = self.progress.seconds
        stopped = False
        while not stopped and (share := self.progress.share(self._options)) < 1:
            stage = stage_at(share, self._options.stages)
            batches = self._batches(stage)
            while not stopped and share < 1 and stage_at(share, self._options.stages) == stage:
                step, stopped = self._step(next(batches), stage, share, is_stopped)
                report(step)
                share = self.progress.share(self._options)
                if self.progress.seconds - saved_at >= 60 * self._options.checkpoint_minutes:
                    self._save(checkpointed)
                    saved_at = self.progress.seconds
        self._save(checkpointed)

    def seconds_per_step(self) -> float:
        """Estimated seconds per step, from computing a part of one twice without an update."""
        stage = stage_at(self.progress.share(self._options), self._options.stages)
        windows = self._windows(stage)
        parts = self._options.gradient_accumulation_steps
        size = self._options.batch_tokens // self._options.stages[stage].window
        share = _share(size, self._accelerator.num_processes)
        batch = default_collate([windows[index] for index in range(-(-share // parts))])
        seconds = 0.0
        for _ in range(2):  # the first pass allocates memory and compiles the model
            began = time.monotonic()
            self._accelerator.backward(self._loss(batch))
            seconds = time.monotonic() - began
            for parameter in self.model.parameters():
                parameter.grad = None
        return seconds * min(parts, share)

    def precision(self) -> AbstractContextManager[None]:
        """The autocast that the options ask for; the model is to be called within it."""
        context: AbstractContextManager[None] = self._accelerator.autocast()
        return context

    def publishable(self) -> nn.Module:
        """The model with full precision weights, to be exported; it cannot be trained further."""
        model: nn.Module = self._accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)
        self._trained.restore(model)
        return model

    def _round(self) -> None:
        """Begin to round the weights, once the last part of the run has come."""
        share = self.progress.share(self._options)
        if self._options.quantization is not None and share >= 1 - self._options.quantized_share:
            self._trained.begin_rounding()

    def _loss(self, batch: Window) -> Tensor:
        """The summed loss of a batch."""
        device = self._accelerator.device
        with self.precision():
            return token_loss(self.model, Window._make(tensor.to(device) for tensor in batch))

    def _step(self, batch: Window, stage: int, share: float, is_stopped: Callable[[], bool]) -> tuple[StepReport, bool]:
        """One optimizer step on batch: this process's [B, T] of the step's windows; and whether to stop after it."""
        self._round()
        began = time.monotonic()
        # At the beginning of the first step the rate is 0.
        middle = min(1.0, share + 0.5 / self._options.max_steps)
        factor = rate_factor(middle, warmup=self._options.warmup, decay=self._options.decay)
        set_rates(self._optimizers, factor)
        loss = self._backward(batch)
        average_gradients(self._accelerator, self.parameters)
        self._accelerator.clip_grad_norm_(self.parameters, self._options.clip)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self._trained.write_back()
        mean_loss, seconds, stopped = self._agree(loss, time.monotonic() - began, is_stopped())
        self._advance(stage, seconds)
        if self.progress.step % TRIM_EVERY == 0:
            return_freed_memory()
        return StepReport(self.progress, share, batch.ids.shape[1], mean_loss, factor), stopped > 0

    def _backward(self, batch: Window) -> float:
        """Compute the gradients of the mean loss over the learned tokens of all processes; returns it, of these."""
        # Dropout is a pure function of seed, step and process too: a resumed run continues as if uninterrupted.
        torch.manual_seed(hash((self._options.seed, self.progress.step, self._accelerator.process_index)))
        (mean_learned,) = self._agree(float(count_learned(batch.learned)))
        loss_sum = torch.zeros((), device=self._accelerator.device)
        parts = self._options.gradient_accumulation_steps
        for part in map(Window._make, zip(*(tensor.chunk(parts) for tensor in batch), strict=True)):
            loss = self._loss(part) / max(mean_learned, 1)
            self._accelerator.backward(loss)
            self._trained.take_gradients()
            loss_sum += loss.detach()
        return loss_sum.item()

    def _agree(self, *own: float) -> list[float]:
        """The means over the processes: equal figures make all processes end at the same step."""
        figures = torch.tensor(own, device=self._accelerator.device)
        means: list[float] = self._accelerator.reduce(figures, reduction="mean").tolist()
        return means

    def _advance(self, stage: int, seconds: float) -> None:
        window = self._options.stages[stage].window
        consumed = self.progress.windows.get(window, 0) + self._options.batch_tokens // window
        self.progress = replace(
            self.progress,
            step=self.progress.step + 1,
            tokens=self.progress.tokens + self._options.batch_tokens,
            seconds=self.progress.seconds + seconds,
            windows={**self.progress.windows, window: consumed},
        )

    def _windows(self, stage: int) -> Windows:
        length = self._options.stages[stage].window
        return Windows(self._corpus, self._vocabulary, self._options.examples, length=length, seed=self._options.seed)

    def _batches(self, stage: int) -> Iterator[Window]:
        """The stage's remaining batches: this process's share, [B, T], each made in a thread during the step before."""
        windows, length = self._windows(stage), self._options.stages[stage].window
        size = self._options.batch_tokens // length
        share = _share(size, self._accelerator.num_processes)
        first = self.progress.windows.get(length, 0) + share * self._accelerator.process_index

        def make(start: int) -> Window:
            return default_collate([windows[index] for index in range(start, start + share)])  # type: ignore[no-any-return]

        with ThreadPoolExecutor(1, "windows") as maker:
            made = maker.submit(make, first)
            for start in count(first + size, size):
                batch, made = made.result(), maker.submit(make, start)
                yield batch

    def _save(self, checkpointed: Callable[[TrainingProgress], None]) -> None:
        if self._accelerator.is_main_process:
            self._folder.save(self._accelerator, self.progress)
            checkpointed(self.progress)
        self._accelerator.wait_for_everyone()


def _compile(model: nn.Module) -> None:
    """Compile what comes before the output layer, which sees another number of tokens in every step."""
    base = without_adapters(model)
    getattr(base, "model", base).compile(dynamic=False)


def _share(windows: int, processes: int) -> int:
    """Number of windows per process and step; OptionError if the windows cannot be shared equally."""
    if windows % processes:
        raise OptionError(f"{windows} windows per step cannot be divided equally among {processes} processes")
    return windows // processes
