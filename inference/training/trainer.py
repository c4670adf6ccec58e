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
    """One run in one folder: builds everything, resumes what is there, and trains to the end."""

    def __init__(self, folder: RunFolder, corpus: Corpus, vocabulary: Vocabulary, options: TrainingOptions) -> None:
        """Build everything, and load the newest checkpoint of a folder that was claimed for these options.

        Raises:
            OptionError: the run was launched on several processes.
        """
        self._folder, self._corpus, self._vocabulary, self._options = folder, corpus, vocabulary, options
        # The weights are bf16 themselves, with masters of our own: accelerate's mixed precision stays off.
        self._accelerator = Accelerator(mixed_precision="no")
        if self._accelerator.num_processes > 1:
            # Every process would train on the same windows.
            raise OptionError(f"launched on {self._accelerator.num_processes} processes, expected one")
        set_seed(options.seed)
        model = build_model(options.shape, vocabulary)
        use_causal_attention(model)
        torch.nn.Module.to(model, self._accelerator.device)
        self._masters = MasterWeights(model)
        torch.nn.Module.to(model, torch.bfloat16)
        self.model, *self._optimizers = self._accelerator.prepare(model, *build_optimizers(self._masters, options))
        self._accelerator.register_for_checkpointing(self._masters)
        self._loss: LossFunction = torch.compile(token_loss, dynamic=False) if options.compile else token_loss
        fresh = Progress(windows=(0,) * len(options.stages))
        self.progress = folder.resume(self._accelerator) or fresh

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
        """One optimizer step on batch: [B, T]."""
        began = time.monotonic()
        factor = rate_factor(share, warmup=self._options.warmup, decay=self._options.decay)
        set_rates(self._optimizers, factor)
        loss = self._loss(self.model, batch.to(self._accelerator.device))
        self._accelerator.backward(loss)
        self._masters.take_gradients()
        torch.nn.utils.clip_grad_norm_(self._masters.masters, self._options.clip)
        for optimizer in self._optimizers:
            optimizer.step()
        self._masters.write_back()
        loss_value = loss.item()
        self._advance(batch, stage, time.monotonic() - began)
        return StepReport(self.progress, share, batch.shape[1], loss_value, factor)

    def _advance(self, batch: Tensor, stage: int, seconds: float) -> None:
        windows = list(self.progress.windows)
        windows[stage] += batch.shape[0]
        self.progress = replace(
            self.progress,
            step=self.progress.step + 1,
            tokens=self.progress.tokens + batch.numel(),
            seconds=self.progress.seconds + seconds,
            windows=tuple(windows),
        )

    def _batches(self, stage: int) -> Iterator[Tensor]:
        """The stage's batches from where the run stands, int64 [B, T], made in another process."""
        length = self._options.stages[stage].window
        windows = Windows(
            self._corpus, self._vocabulary, self._options.examples, length=length, seed=self._options.seed
        )
        size = self._options.batch_tokens // length
        return iter(DataLoader(windows, batch_sampler=_Consecutive(self.progress.windows[stage], size), num_workers=1))

    def _save(self, checkpointed: Callable[[Progress], None]) -> None:
        self._folder.save(self._accelerator, self.progress)
        checkpointed(self.progress)


class _Consecutive:
    """Batches of consecutive window indices, without end."""

    def __init__(self, start: int, size: int) -> None:
        self._start, self._size = start, size

    def __iter__(self) -> Iterator[list[int]]:
        start = self._start
        while True:
            yield list(range(start, start + self._size))
            start += self._size
