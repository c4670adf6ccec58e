"""Owns a run's folder: its recipes, its atomically written checkpoints, and its log."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from midfill_lab.training.errors import CheckpointError
from midfill_lab.training.optimization.schedule import TrainingProgress
from midfill_lab.training.options import TrainingOptions

KEPT = 2
WEIGHTS, OPTIMIZERS = "weights.safetensors", "optimizers.pt"
_COPIED = ("manifest.json", "tokenizer.json")


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
