"""What a training tells: counts before it starts, its progress, the losses by format, and the model's card."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from midfill_lab.training.corpus import PackageRecord
from midfill_lab.training.data import Data
from midfill_lab.training.losses import LAYOUTS, PLAIN, FormatLoss
from midfill_lab.training.machine import this_machine
from midfill_lab.training.optimizers import TrainingProgress
from midfill_lab.training.options import TrainingOptions
from midfill_lab.training.trainer import StepReport

_PRIVATE = (
    "They are not named here, but the model\nmay reproduce parts of them: share it only with people who may read these files."
)
_PUBLIC = "The packages are named below; the model\nmay reproduce parts of them."
_COLUMNS = ("", "before", "after", "in fragments: before", "in fragments: after", "ends", "too early")
_BASE = """---
{head}pipeline_tag: text-generation
library_name: transformers
tags: [code, fill-in-the-middle, efim]
---

# {name}

{origin} with fragment tokenization (EFIM, arXiv 2505.21889) on {whose}, by `midfill train`.
Prompts are those of the FIM format `{fim_format}`. Run it with `midfill lsp --model FOLDER`.

## Training

{steps:,} steps, {tokens:,} tokens, {minutes:.0f} minutes on {machine}.
Data: {files}; held out: {held_out}. {notice}{licence}

```sh
{command}
```

## Held-out losses

Nats per byte of middle, including its end marker; "in fragments" tokenizes it in two pieces. The last columns are the
shares of these middles at whose end the end marker is the most probable token, and in which it is at an earlier place.

{losses}
{packages}"""
_PACKAGES = """
## Packages

Every package keeps its own licence and copyright; they are named here as attribution.
Files dropped, by reason: {dropped}.

Held out: {held_out}.

| package | licence | files | kB |
| --- | --- | --- | --- |
{rows}
"""
SMOOTHED_STEPS = 50
LINE_SECONDS = 30.0


def data_lines(data: Data, tokens_per_byte: float) -> list[str]:
    """Lines with the files to train on and those left out."""
    train, held_out = _size(data.manifest.of_role("train")), _size(data.manifest.of_role("held_out"))
    tokens = round(train[1] * tokens_per_byte)
    lines = [f"Training on {_size_text(train)}, about {tokens:,} tokens. Held out: {_size_text(held_out)}."]
    if data.manifest.dropped:
        dropped = ", ".join(f"{count:,} {kind}" for kind, count in data.manifest.dropped.items())
        reasons = data.folder.parent / "left-out.txt"  # of files; a collected corpus has counts alone
        lines.append(f"Left out: {dropped}." + (f" Reasons per file: {reasons}" if reasons.is_file() else ""))
    return lines


def plan_lines(options: TrainingOptions, learning: int, parameters: int, epochs: float, seconds: float | None) -> list[str]:
    """Lines with the plan of the run and its duration; `seconds` are those of a step, None for a run by the clock."""
    window = options.stages[0].window
    later = "".join(f", then of {stage.window:,}" for stage in options.stages[1:])
    what = f"{parameters / 1e6:,.1f}M parameters"
    if learning != parameters:
        what += f", of which {learning / 1e6:,.2f}M learn (LoRA)"
    steps = f"steps of {options.batch_tokens // window} windows of {window:,} tokens{later}"
    if seconds is None:
        plan = f"{steps[0].upper()}{steps[1:]}, for {options.minutes:g} minutes."
    else:
        length = f"{seconds:.2g} s a step, {_duration(seconds * options.max_steps)} in all"
        plan = f"{options.max_steps:,} {steps}, {epochs:.1f} epochs; {length}."
    return [f"Model: {what}, from {options.start or 'scratch'}.", plan]


def losses_lines(step: int, losses: Sequence[FormatLoss]) -> list[str]:
    """Lines with the held-out losses after a step, and how well the ends of middles are predicted."""
    told = ", ".join(f"{_name(loss.layout)} {loss.whole:.3f} / {loss.fragments:.3f}" for loss in losses)
    with_ends = [loss for loss in losses if loss.layout != PLAIN]
    ends = ", ".join(f"{_name(loss.layout)} {loss.ends:.0%} / {loss.early:.0%}" for loss in with_ends)
    return [
        f"held-out loss after step {step}, whole / in fragments: {told}",
        f"end of middle predicted in place / too early: {ends}",
    ]


def losses_table(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> Table:
    """Held-out losses as a table for the terminal."""
    table = Table(title="held-out loss, nats per byte of middle", title_justify="left")
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name == "" else "right")
    for row in _rows(before, after):
        table.add_row(*row)
    return table


def card(
    name: str,
    data: Data,
    options: TrainingOptions,
    progress: TrainingProgress,
    command: str,
    losses: tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]],
) -> str:
    """The model card, in Markdown."""
    header = f"| {' | '.join(_COLUMNS)} |\n|{' --- |' * len(_COLUMNS)}\n"
    train, held_out = _size(data.manifest.of_role("train")), _size(data.manifest.of_role("held_out"))
    start = options.start
    return _BASE.format(
        head="" if start is None else f"base_model: {start}\n",
        name=name,
        origin="Trained from scratch" if start is None else f"{start}, trained further",
        fim_format=data.vocabulary.format.name,
        steps=progress.step,
        tokens=progress.tokens,
        minutes=progress.seconds / 60,
        machine=this_machine(),
        files=_size_text(train),
        held_out=_size_text(held_out),
        whose="the packages below" if _is_public(data) else "files of its owner",
        notice=_PUBLIC if _is_public(data) else _PRIVATE,
        packages=_packages(data) if _is_public(data) else "",
        licence="" if start is None else f" The licence of {start} applies to this model too.",
        command=command,
        losses=header + "\n".join(f"| {' | '.join(row)} |" for row in _rows(*losses)),
    )


def _is_public(data: Data) -> bool:
    """Whether the data is of packages with licences, rather than the user's own files."""
    return all(record.licence for record in data.manifest.packages)


def _packages(data: Data) -> str:
    manifest = data.manifest
    return _PACKAGES.format(
        dropped=", ".join(f"{reason} {count:,}" for reason, count in manifest.dropped.items()),
        held_out=", ".join(f"{record.name} {record.version}" for record in manifest.of_role("held_out")),
        rows="\n".join(_package_rows(manifest.of_role("train"))),
    )


def _package_rows(packages: tuple[PackageRecord, ...]) -> Iterator[str]:
    """One row per package name; joins versions and licences from several environments."""
    ordered = sorted(packages, key=lambda package: package.name)
    for name, several in groupby(ordered, key=lambda package: package.name):
        group = list(several)
        versions = ", ".join(dict.fromkeys(package.version for package in group))
        licences = "; ".join(dict.fromkeys(package.licence for package in group))
        files, size = sum(package.files for package in group), sum(package.bytes for package in group)
        yield f"| {name} {versions} | {licences} | {files} | {size / 1e3:.0f} |"


def _rows(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    return [
        (
            _name(old["layout"]),
            *(f"{loss:.3f}" for loss in (old["whole"], new["whole"], old["fragments"], new["fragments"])),
            *("" if old["layout"] == PLAIN else f"{share:.0%}" for share in (new["ends"], new["early"])),
        )
        for old, new in zip(before, after, strict=True)
    ]


def _name(layout: str) -> str:
    """A format in capitals; a family of languages as it is."""
    return layout.upper() if layout in LAYOUTS else layout


def _size(records: Sequence[PackageRecord]) -> tuple[int, int]:
    """Files and bytes."""
    return sum(record.files for record in records), sum(record.bytes for record in records)


def _size_text(size: tuple[int, int]) -> str:
    files, count = size
    return f"{files:,} {'file' if files == 1 else 'files'}, {decimal(count)}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"about {seconds:.0f} s"
    return f"about {seconds / 60:.0f} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
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
