"""Displays a run's progress: a progress bar, or lines without a terminal."""

from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from midfill_lab.training.optimization.schedule import TrainingProgress
from midfill_lab.training.run.trainer import StepReport

SMOOTHED_STEPS = 50
LINE_SECONDS = 30.0


class ProgressDisplay:
    """Shows the smoothed loss and speed of a run on a console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Bar(
            TextColumn("step {task.fields[step]:,}"),
            BarColumn(),
            TextColumn("{task.percentage:.1f} %  {task.fields[text]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("run", total=1.0, step=0, text="starting")
        self._recent: deque[StepReport] = deque(maxlen=SMOOTHED_STEPS)
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def step(self, report: StepReport) -> None:
        """Show a step; without a terminal, print a line every half minute of training."""
        self._recent.append(report)
        progress = report.progress
        self._bar.update(self._task, completed=report.share, step=progress.step, text=self._text())
        if not self._console.is_terminal and progress.seconds - self._shown_at >= LINE_SECONDS:
            self._shown_at = progress.seconds
            self._console.print(f"step {progress.step}  {report.share:.1%}  {self._text()}")

    def checkpointed(self, progress: TrainingProgress) -> None:
        self._console.print(f"checkpoint at step {progress.step}, {progress.tokens / 1e6:.2f}M tokens")

    def _text(self) -> str:
        first, last = self._recent[0].progress, self._recent[-1].progress
        seconds = last.seconds - first.seconds
        speed = (last.tokens - first.tokens) / seconds if seconds else 0.0
        loss = sum(report.loss for report in self._recent) / len(self._recent)
        return f"loss {loss:.3f}  window {self._recent[-1].window}  {speed:,.0f} tokens/s"
