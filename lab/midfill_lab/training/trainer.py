"""Owns the training loop, which can be stopped and resumed at any step, and the folder of its checkpoints."""

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from midfill_lab.training.machine import Device, return_freed_memory
from midfill_lab.training.model import (
    Batch,
    compile_layers,
    part_tokens,
    start_model,
    summed_loss,
    token_loss,
    uncompile_layers,
    without_adapters,
)
from midfill_lab.training.optimizers import (
    MasterWeights,
    OwnWeights,
    Trained,
    TrainingProgress,
    build_optimizers,
    peaks_of,
    rate_factor,
    restore_peaks,
    set_rates,
    stage_at,
)
from midfill_lab.training.options import CheckpointError, TrainingOptions
from midfill_lab.training.vocabulary import Vocabulary
from midfill_lab.training.windows import Window, WindowMakers, WindowSource

KEPT = 2
WEIGHTS, OPTIMIZERS = "weights.safetensors", "optimizers.pt"
_COPIED = ("manifest.json", "tokenizer.json")
TRIM_EVERY = 25
"""Steps after which the memory that no block fitted into goes back to the system."""
SPARED_CORES = 2
"""Beside a GPU, cores for the training loop and the driver; the others make windows."""


@dataclass(frozen=True)
class Recipe:
    """The options that affect the result of training, and the step from which they apply."""

    step: int
    options: dict[str, Any]

    def changes_to(self, other: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
        """The options that differ in `other`: by name, the value here and there."""
        names = dict.fromkeys((*self.options, *other))
        pairs = {name: (self.options.get(name), other.get(name)) for name in names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@dataclass(frozen=True)
class State:
    """What a run goes on from: the weights that learn, by name in float32, and the states of what updates them."""

    weights: dict[str, Tensor]
    optimizers: list[dict[str, Any]]
    scaler: dict[str, Any]


@dataclass(frozen=True)
class RunFolder:
    """The files of one run.

    A checkpoint is a folder `step-NNNNNNNN` of weights, optimizers and `progress.json`. It is written under another
    name and renamed when complete, so that a killed process leaves the previous one.
    """

    root: Path

    @property
    def log(self) -> Path:
        return self.root / "log.jsonl"

    @property
    def tokenizer(self) -> Path:
        return self.root / "tokenizer.json"

    def latest(self) -> Path | None:
        """The newest complete checkpoint."""
        return max(self.root.glob("step-" + "[0-9]" * 8), default=None)

    def save(self, state: State, progress: TrainingProgress) -> Path:
        """Write a checkpoint and remove all but the newest ones."""
        partial, final = self.root / "partial", self.root / f"step-{progress.step:08d}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        save_file({name: weights.contiguous() for name, weights in state.weights.items()}, partial / WEIGHTS)
        torch.save([state.optimizers, state.scaler], partial / OPTIMIZERS)
        (partial / "progress.json").write_text(json.dumps(asdict(progress)))
        _sync(partial)
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)
        for old in sorted(self.root.glob("step-" + "[0-9]" * 8))[:-KEPT]:
            shutil.rmtree(old)
        return final

    def resume(self, device: torch.device) -> tuple[State, TrainingProgress] | None:
        """What the newest checkpoint has; None without a checkpoint.

        Raises:
            CheckpointError: another version of midfill wrote it.
        """
        checkpoint = self.latest()
        if checkpoint is None:
            return None
        try:
            weights = load_file(checkpoint / WEIGHTS, device=str(device))
            optimizers, scaler = torch.load(checkpoint / OPTIMIZERS, map_location=device, weights_only=True)
        except FileNotFoundError as error:
            raise CheckpointError(f"{checkpoint} is of another version of midfill: {error}") from error
        return State(weights, optimizers, scaler), read_progress(checkpoint)

    def claim(self, corpus: Path, options: TrainingOptions, *, change_recipe: bool = False) -> None:
        """Claim the folder for this run: save the recipe, and copy the corpus's identity.

        Raises:
            CheckpointError: the folder has a run on another corpus, or of another recipe without `change_recipe`.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        latest = self.latest()
        recipes = self.read_recipes() if latest is not None else []
        if latest is not None:
            self._check_corpus(corpus)
        wanted = options.recipe()
        changes = recipes[-1].changes_to(wanted) if recipes else {}
        if changes and not change_recipe:
            name, (found, other) = next(iter(changes.items()))
            raise CheckpointError(f"{self.root} was run with {name} = {found}, not {other}; --change-recipe allows it")
        if changes or not recipes:
            recipes.append(Recipe(read_progress(latest).step if latest else 0, wanted))
        for name in _COPIED:
            shutil.copyfile(corpus / name, self.root / name)
        recorded = json.dumps([asdict(recipe) for recipe in recipes], indent=1)
        (self.root / "recipes.json").write_text(recorded + "\n")

    def _check_corpus(self, corpus: Path) -> None:
        for name in _COPIED:
            if (corpus / name).read_bytes() != (self.root / name).read_bytes():
                raise CheckpointError(f"{self.root} was run with another {name} than that of {corpus}")

    def read_recipes(self) -> list[Recipe]:
        """The recipes of the run, the first of which applies from step 0."""
        return [Recipe(**raw) for raw in json.loads((self.root / "recipes.json").read_text())]

    def append_log(self, record: dict[str, Any]) -> None:
        with self.log.open("a+b") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - 1))
            is_cut_off = log.read() not in (b"", b"\n")  # of a process that ended while it wrote
            log.write(b"\n" * is_cut_off + json.dumps(record).encode() + b"\n")

    def logged(self) -> Iterator[dict[str, Any]]:
        """The records of the log, but for lines that are cut off."""
        for line in self.log.read_text().splitlines():
            with suppress(ValueError):
                yield json.loads(line)


def read_progress(checkpoint: Path) -> TrainingProgress:
    """Read the progress of a checkpoint."""
    raw = json.loads((checkpoint / "progress.json").read_text())
    windows = {int(length): count for length, count in raw["windows"].items()}
    return TrainingProgress(raw["step"], raw["tokens"], raw["seconds"], windows)


def _sync(folder: Path) -> None:
    """Force a folder's files to the disk before it is renamed into place."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


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
    """One run in one folder: builds the model, resumes from the newest checkpoint, and trains to the end."""

    def __init__(self, folder: RunFolder, corpus: Path, vocabulary: Vocabulary, options: TrainingOptions, device: Device) -> None:
        """Build everything, and load the newest checkpoint of a folder claimed for these options.

        corpus: the folder of a corpus, with the `tokenizer.json` of `vocabulary`.

        Raises:
            CheckpointError: the newest checkpoint is of another version.
        """
        self._folder, self._options, self._device = folder, options, device
        self._source = WindowSource(corpus, options.examples, options.seed, vocabulary.format.name)
        self._parts = options.gradient_accumulation_steps
        torch.manual_seed(options.seed)
        self.model = start_model(options, vocabulary)
        nn.Module.to(self.model, device.torch)
        if options.mixed_precision is None:
            masters = MasterWeights(self.model, options.quantization)
            masters.lower()
            self.trained: Trained = masters
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
        """Train to the end of the run, or until it is stopped.

        Calls `report` with every step, and `checkpointed` with every checkpoint. The windows
        are those of `makers`, which the caller closes, or of makers of the run's own.
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
            for near in dict.fromkeys((stage, min(stage + 1, len(self._options.stages) - 1))):
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
            on_cpu = self._device.torch.type == "cpu"
            processes = 0 if on_cpu else max(1, (os.cpu_count() or 1) - SPARED_CORES)
        return WindowMakers(self._source, processes)

    def seconds_per_step(self) -> float:
        """Estimated seconds per step, from computing a part of one twice without an update."""
        stage = stage_at(self.progress.share(self._options), self._options.stages)
        windows = self._source.windows(self._length(stage))
        share = self._step_windows(stage)
        made = [windows[index] for index in range(-(-share // self._parts))]
        seconds = 0.0
        for _ in range(2):  # the first pass allocates memory and compiles the model
            began = time.monotonic()
            self._device.scaler.scale(self._loss(_stacked(made))).backward()  # type: ignore[no-untyped-call]
            seconds = time.monotonic() - began
            for parameter in self.model.parameters():
                parameter.grad = None
        return seconds * min(self._parts, share)

    def precision(self) -> AbstractContextManager[object]:
        """The autocast that the options ask for; the model is to be called within it."""
        return self._device.precision()

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
        if self._device.torch.type != "cpu":
            compile_layers(self.model)
            self._summed = torch.compile(summed_loss, dynamic=False)
            return
        # What comes before the output layer, which sees another number of tokens in every step.
        base = without_adapters(self.model)
        getattr(base, "model", base).compile(dynamic=False)

    def _resume(self) -> None:
        peaks = peaks_of(self._optimizers)
        if resumed := self._folder.resume(self._device.torch):
            state, self.progress = resumed
            self.trained.load(state.weights)
            for optimizer, loaded in zip(self._optimizers, state.optimizers, strict=True):
                optimizer.load_state_dict(loaded)
            self._device.scaler.load_state_dict(state.scaler)
        restore_peaks(self._optimizers, peaks)

    def _round(self) -> None:
        """Begin to round the weights, once the last part of the run has come."""
        share = self.progress.share(self._options)
        if self._options.quantization is not None and share >= 1 - self._options.quantized_share:
            self.trained.begin_rounding()

    def _loss(self, window: Window) -> Tensor:
        """The summed loss of windows."""
        device = self._device.torch
        batch = Batch.of(window, 1 if self._summed is summed_loss else part_tokens(device))
        with self.precision():
            return token_loss(self.model, batch.to(device), self._summed)

    def _step(
        self, windows: Window, stage: int, share: float, began: float, is_stopped: Callable[[], bool], waited: float
    ) -> tuple[StepReport, bool]:
        """One optimizer step on the step's windows [B, T]; and whether to stop after it."""
        self._round()
        # At the beginning of the first step the rate is 0.
        middle = min(1.0, share + 0.5 * self._share_of_a_step())
        factor = rate_factor(middle, self.progress.step, self._options)
        set_rates(self._optimizers, factor)
        loss = self._backward(windows)
        parameters = list(self.trained.named.values())
        scaler = self._device.scaler
        for optimizer in self._optimizers:
            scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(parameters, self._options.clip)
        for optimizer in self._optimizers:
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()
        self.trained.write_back()
        self._advance(stage, time.monotonic() - began)
        if self.progress.step % TRIM_EVERY == 0:
            return_freed_memory()
        return StepReport(self.progress, share, windows.ids.shape[1], loss, factor, waited), is_stopped()

    def _share_of_a_step(self) -> float:
        """The share of the run that a step takes; by the clock, one as long as those so far."""
        if self._options.minutes is None:
            return 1 / self._options.max_steps
        return self.progress.share(self._options) / max(1, self.progress.step)

    def _backward(self, windows: Window) -> float:
        """Compute the gradients of the mean loss over the learned tokens, and return it.

        What does not fit into the device's memory is computed in more parts, from then on.
        """
        # Dropout is a pure function of seed and step too: a resumed run continues as if uninterrupted.
        torch.manual_seed(hash((self._options.seed, self.progress.step)))
        learned = max(1, int((windows.learned & ~windows.begins).sum()))
        while True:
            try:
                return self._accumulate(windows, learned)
            except torch.OutOfMemoryError:
                if self._parts >= len(windows.ids):
                    raise
            self._parts *= 2
            for parameter in (*self.model.parameters(), *self.trained.named.values()):
                parameter.grad = None
            torch.cuda.empty_cache()

    def _accumulate(self, windows: Window, learned: int) -> float:
        loss_sum = torch.zeros((), device=self._device.torch)
        size = -(-len(windows.ids) // self._parts)
        for start in range(0, len(windows.ids), size):
            loss = self._loss(Window._make(field[start : start + size] for field in windows)) / learned
            self._device.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            self.trained.take_gradients()
            loss_sum += loss.detach()
        return loss_sum.item()

    def _advance(self, stage: int, seconds: float) -> None:
        window = self._length(stage)
        consumed = self.progress.windows.get(window, 0) + self._step_windows(stage)
        self.progress = replace(
            self.progress,
            step=self.progress.step + 1,
            tokens=self.progress.tokens + self._options.batch_tokens,
            seconds=seconds,
            windows={**self.progress.windows, window: consumed},
        )

    def _length(self, stage: int) -> int:
        return self._options.stages[stage].window

    def _step_windows(self, stage: int) -> int:
        """Number of windows of a step."""
        return self._options.batch_tokens // self._length(stage)

    def _windows(self, makers: WindowMakers, stage: int) -> Iterator[Window]:
        """The stage's remaining windows: those of each step, [B, T]."""
        length, number = self._length(stage), self._step_windows(stage)
        return makers.sequence(length, self.progress.windows.get(length, 0), number, number)

    def _save(self, checkpointed: Callable[[TrainingProgress], None]) -> None:
        weights = {name: parameter.detach() for name, parameter in self.trained.named.items()}
        optimizers = [each.state_dict() for each in self._optimizers]
        self._folder.save(State(weights, optimizers, self._device.scaler.state_dict()), self.progress)
        checkpointed(self.progress)


def _stacked(windows: list[Window]) -> Window:
    return Window._make(map(np.stack, zip(*windows, strict=True)))
