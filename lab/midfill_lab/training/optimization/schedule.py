"""Tracks the progress of a run, and derives the learning rate and the stage from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from midfill_lab.training.options import Stage, TrainingOptions


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a run, over all its resumes.

    Attributes:
        seconds: wall-clock time spent in the training loop, with all that it waits for.
        windows: number of consumed windows by their length: the position in the data, whatever the stages are.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    windows: Mapping[int, int] = field(default_factory=dict)

    def share(self, options: TrainingOptions) -> float:
        """The completed share of the run, 0 to 1."""
        done = self.step / options.max_steps if options.minutes is None else self.seconds / (60 * options.minutes)
        return min(1.0, done)


def rate_factor(share: float, step: int, options: TrainingOptions) -> float:
    """Warmup-stable-decay: linear from 0, constant, linear to 0 (arXiv 2404.06395, section 4).

    share: of the run, in the middle of a step; step: how many were made before it.
    """
    warm = 1.0
    if options.warmup_steps:
        warm = (step + 0.5) / options.warmup_steps
    elif share < options.warmup:
        warm = share / options.warmup
    return min(1.0, warm, (1 - share) / options.decay if options.decay else 1.0)


def stage_at(share: float, stages: Sequence[Stage]) -> int:
    """The index of the current stage."""
    begun = 0.0
    for index, stage in enumerate(stages):
        begun += stage.share
        if share < begun:
            return index
    return len(stages) - 1
