"""Owns the training loop: from windows to weights, resumable at any moment."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import set_seed  # type: ignore[import-untyped]
from torch import Tensor
from torch.utils.data import DataLoader

from inference.training.checkpoints import RunFolder
from inference.training.corpus import Corpus
from inference.training.errors import OptionError
from inference.training.modeling import LossFunction, build_model, token_loss, use_causal_attention
from inference.training.optimizers import MasterWeights, build_optimizers, set_rates
from inference.training.options import TrainingOptions
from inference.training.processes import average_gradients
from inference.training.schedule import Progress, rate_factor, stage_at
from inference.training.vocabulary import Vocabulary
from inference.training.windows import Windows


@dataclass(frozen=True)
class StepReport:
    """One optimizer step, as the progress display and the log see it; `loss` is in nats a token."""

    progress: Progress
    share: float
    window: int
    loss: float
    rate_factor: float


class Trainer:
    """One run in one folder: builds everything, resumes what is there, and trains to the end.

    On several processes each takes its share of the windows of every step. What is learned is the same, up to rounding,
    and so is the checkpoint, which another number of processes may resume.
    """

    def __init__(
        self,
        folder: RunFolder,
        corpus: Corpus,
        vocabulary: Vocabulary,
        options: TrainingOptions,
        accelerator: Accelerator,
    ) -> None:
        """Build everything, and load the newest checkpoint of a folder that was claimed for these options.

        Raises:
            OptionError: the windows of a step cannot be shared equally among the processes.
        """
        self._folder, self._corpus, self._vocabulary, self._options = folder, corpus, vocabulary, options
        self._accelerator = accelerator
        for stage in options.stages:
            _share(options.batch_tokens // stage.window, accelerator.num_processes)
        set_seed(options.seed)
        model = build_model(options.shape, vocabulary)
        use_causal_attention(model)
        torch.nn.Module.to(model, accelerator.device)
        self._masters = MasterWeights(model)
        torch.nn.Module.to(model, torch.bfloat16)
        # Not wrapped for distribution, which "evaluation" stands for here: see average_gradients.
        self.model = accelerator.prepare_model(model, evaluation_mode=True)
        self._optimizers = [accelerator.prepare(optimizer) for optimizer in build_optimizers(self._masters, options)]
        accelerator.register_for_checkpointing(self._masters)
        self._loss: LossFunction = torch.compile(token_loss, dynamic=False) if options.compile else token_loss
        fresh = Progress(windows=(0,) * len(options.stages))
        self.progress = folder.resume(accelerator) or fresh

    def run(self, report: Callable[[StepReport], None], checkpointed: Callable[[Progress], None]) -> None:
        """Train to the end of the run; `report` hears of every step, `checkpointed` of every checkpoint."""
        saved_at = self.progress.seconds
        while (share := self.progress.share(self._options)) < 1:
            stage = stage_at(share, self._options.stages)
            batches = self._batches(stage)
            while share < 1 and stage_at(share, self._options.stages) == stage:
                report(self._step(next(batches), stage, share))
                share = self.progress.share(self._options)
                if self.progress.seconds - saved_at >= 60 * self._options.checkpoint_minutes:
                    self._save(checkpointed)
                    saved_at = self.progress.seconds
        self._save(checkpointed)

    def _step(self, batch: Tensor, stage: int, share: float) -> StepReport:
        """One optimizer step on batch: this process's [B, T] of the step's windows."""
        began = time.monotonic()
        factor = rate_factor(share, warmup=self._options.warmup, decay=self._options.decay)
        set_rates(self._optimizers, factor)
        loss = self._loss(self.model, batch.to(self._accelerator.device))
        self._accelerator.backward(loss)
        self._masters.take_gradients()
        average_gradients(self._accelerator, self._masters.masters)
        torch.nn.utils.clip_grad_norm_(self._masters.masters, self._options.clip)
        for optimizer in self._optimizers:
            optimizer.step()
        self._masters.write_back()
        mean_loss, seconds = self._agree(loss, time.monotonic() - began)
        self._advance(stage, seconds)
        return StepReport(self.progress, share, batch.shape[1], mean_loss, factor)

    def _agree(self, loss: Tensor, seconds: float) -> tuple[float, float]:
        """The mean loss and time of the processes: all go by the same, or they would not end at the same step."""
        own = torch.tensor([loss.item(), seconds], device=self._accelerator.device)
        mean_loss, mean_seconds = self._accelerator.reduce(own, reduction="mean").tolist()
        return mean_loss, mean_seconds

    def _advance(self, stage: int, seconds: float) -> None:
        window = self._options.stages[stage].window
        windows = list(self.progress.windows)
        windows[stage] += self._options.batch_tokens // window
        self.progress = replace(
            self.progress,
            step=self.progress.step + 1,
            tokens=self.progress.tokens + self._options.batch_tokens,
            seconds=self.progress.seconds + seconds,
            windows=tuple(windows),
        )

    def _batches(self, stage: int) -> Iterator[Tensor]:
        """The stage's batches from where the run stands: this process's share, int64 [B, T], made in a further one."""
        length = self._options.stages[stage].window
        windows = Windows(
            self._corpus, self._vocabulary, self._options.examples, length=length, seed=self._options.seed
        )
        size = self._options.batch_tokens // length
        share = _share(size, self._accelerator.num_processes)
        first = self.progress.windows[stage] + share * self._accelerator.process_index
        return iter(DataLoader(windows, batch_sampler=_Batches(first, share, size), num_workers=1))

    def _save(self, checkpointed: Callable[[Progress], None]) -> None:
        if self._accelerator.is_main_process:
            self._folder.save(self._accelerator, self.progress)
            checkpointed(self.progress)
        self._accelerator.wait_for_everyone()


def _share(windows: int, processes: int) -> int:
    """How many of a step's windows are each process's; OptionError where they cannot be as many for each."""
    if windows % processes:
        raise OptionError(f"{windows} windows in a step, which {processes} processes cannot share equally")
    return windows // processes


class _Batches:
    """Batches of consecutive window indices, without end: `size` from `first` on, and so on every `stride`."""

    def __init__(self, first: int, size: int, stride: int) -> None:
        self._first, self._size, self._stride = first, size, stride

    def __iter__(self) -> Iterator[list[int]]:
        first = self._first
        while True:
            yield list(range(first, first + self._size))
            first += self._stride
