"""Tracks the progress of a run, and derives the learning rate and the stage from it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inference.training.options import Stage, TrainingOptions


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a run, over all its resumes.

    Attributes:
        seconds: wall-clock time spent training.
        windows: number of consumed windows by their length: the position in the data, whatever the stages are.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    windows: Mapping[int, int] = field(default_factory=dict)

    def share(self, options: TrainingOptions) -> float:
        """The completed share of the run, 0 to 1."""
        return min(1.0, self.step / options.max_steps)


def rate_factor(share: float, *, warmup: float, decay: float) -> float:
    """Warmup-stable-decay: linear from 0, constant, linear to 0 (arXiv 2404.06395, section 4)."""
    if share < warmup:
        return share / warmup
    return min(1.0, (1 - share) / decay) if decay else 1.0


def stage_at(share: float, stages: Sequence[Stage]) -> int:
    """The index of the current stage."""
    begun = 0.0
    for index, stage in enumerate(stages):
        begun += stage.share
        if share < begun:
            return index
    return len(stages) - 1
