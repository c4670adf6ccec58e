"""Runs the conditions on the tasks, in pairs, and reports exact match and identifier match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table

from midfill_lab.evaluation.cross_file.conditions import CONDITIONS, TODAY, Desk
from midfill_lab.evaluation.cross_file.packages import PACKAGES, Language, packages_folder, unpacked
from midfill_lab.evaluation.cross_file.tasks import CrossFileTask, cut_tasks
from midfill_lab.evaluation.report import cell
from midfill_lab.evaluation.runner import Complete
from midfill_lab.evaluation.scoring import Estimate, mean, share
from protocol.errors import BadInput
from protocol.messages import StopRule

_IDENTIFIER = re.compile(r"[^\W\d][\w$]*")
_LANGUAGES: Sequence[Language] = ("python", "typescript")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one completion did: the rest of the line, and its identifiers in their order."""

    exact: bool
    identifiers: bool
    shown: bool  # the symbol's name stands in the text of other files


class _Row(msgspec.Struct):
    """What `read_outcomes` reads of a `task_object`."""

    task: str
    outcomes: dict[str, Outcome]


@dataclass(frozen=True, slots=True)
class CrossFileRow:
    """One condition on the tasks of one language."""

    language: Language
    condition: str
    n: int
    figures: Mapping[str, Estimate | None]  # by the headings of the report


def collect_tasks(
    cache: Path | None, limit: int | None, seed: int, on_package: Callable[[str], None]
) -> list[CrossFileTask]:
    """The tasks of all packages, at most `limit` of each language, drawn by the seed; downloads what is missing.

    `cache` is the folder of the packages; None for the user's.
    """
    cache = cache or packages_folder()
    tasks: dict[Language, list[CrossFileTask]] = {language: [] for language in _LANGUAGES}
    for package in PACKAGES:
        on_package(package.name)
        tasks[package.language] += cut_tasks(package, unpacked(package, cache), seed)
    chosen = []
    for language, several in tasks.items():
        count = len(several) if limit is None else min(limit, len(several))
        chosen += Random(f"{seed}/{language}").sample(several, count)
    return chosen


def run(
    tasks: Sequence[CrossFileTask], desk: Desk, complete: Complete, on_done: Callable[[], None]
) -> Iterator[tuple[CrossFileTask, Mapping[str, Outcome]]]:
    """Each task in every condition, so that an aborted run has pairs; equal prompts are computed once."""
    for task in tasks:
        answers: dict[object, str] = {}
        outcomes = {}
        for condition, sources in CONDITIONS.items():
            prompt = desk.prompt(task, sources)
            if prompt not in answers:
                answers[prompt] = complete(prompt, StopRule())[0]
            outcomes[condition] = score(task, answers[prompt], "".join(each.text for each in prompt.context))
            on_done()
        yield task, outcomes


def score(task: CrossFileTask, completion: str, context: str) -> Outcome:
    """Score one completion; only its first line counts, without white space at its end."""
    given = completion.partition("\n")[0].rstrip()
    identifiers = _IDENTIFIER.findall(given)
    shown = re.search(rf"(?<!\w){re.escape(task.symbol)}(?!\w)", context) is not None
    return Outcome(given == task.middle, identifiers == _IDENTIFIER.findall(task.middle), shown)


def read_outcomes(file: Path) -> dict[str, Mapping[str, Outcome]]:
    """The outcomes of each task that an earlier run has written, by the task's name; none if there is no file.

    Raises BadInput if a line is not a task's; the last one may be torn.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadInput(f"{file} cannot be read: {error}") from error
    found: dict[str, Mapping[str, Outcome]] = {}
    for number, line in enumerate(lines, 1):
        try:
            row = msgspec.json.decode(line, type=_Row)
        except ValueError as error:
            if line.endswith("\n"):
                raise BadInput(f"{file}, line {number}: {error}") from error
        else:
            found[row.task] = row.outcomes
    return found


def rows(scored: Sequence[tuple[CrossFileTask, Mapping[str, Outcome]]]) -> list[CrossFileRow]:
    """A row for each language and condition."""
    found = []
    for language in _LANGUAGES:
        outcomes = [each for task, each in scored if task.package.language == language]
        for condition in CONDITIONS if outcomes else ():
            own = [each[condition] for each in outcomes]
            gains = [float(each[condition].exact) - float(each[TODAY].exact) for each in outcomes]  # task by task
            figures = {
                "exact match": share([each.exact for each in own]),
                "identifier match": share([each.identifiers for each in own]),
                "symbol shown": share([each.shown for each in own]),
                "points over today's": mean(gains),
            }
            found.append(CrossFileRow(language, condition, len(own), figures))
    return found


def report(found: Sequence[CrossFileRow], title: str) -> RenderableType:
    """A table for each language; under each figure its 95 % interval."""
    tables = []
    for language in dict.fromkeys(row.language for row in found):
        several = [row for row in found if row.language == language]
        table = Table(title=f"{language}, n = {several[0].n}", title_justify="left")
        table.add_column("context")
        for column in several[0].figures:
            table.add_column(column, justify="right")
        for row in several:
            table.add_row(row.condition, *map(cell, row.figures.values()))
        tables.append(table)
    return Group(title, *tables, "Under each figure its 95 % interval.")


def task_object(task: CrossFileTask, outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    """A task's outcomes for JSON."""
    shown = {name: asdict(each) for name, each in outcomes.items()}
    return {"task": task.name, "language": task.package.language, "symbol": task.symbol, "outcomes": shown}
