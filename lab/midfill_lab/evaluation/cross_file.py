"""How much context of other files pays: runs the tasks under each condition, in pairs, and reports what matches."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table

from lsp_server.context.document_sources import SimilarChunks
from lsp_server.context.gathering import place_of
from lsp_server.context.index.database import IndexWriter
from lsp_server.context.index.scan import NO_RULES, scan
from lsp_server.context.index_sources import Definitions, NeighbourTexts, Usages, neighbours_of
from lsp_server.context.proposals import Source
from lsp_server.context.snippet_pool import SnippetPool
from lsp_server.documents.documents import Document
from lsp_server.documents.positions import shown_path
from lsp_server.prompts.anchors import WindowBudget
from lsp_server.prompts.planner import PromptPlanner
from midfill_lab.evaluation.packages import PACKAGES, CrossFileTask, Language, cut_tasks, packages_folder, source_files, unpacked
from midfill_lab.evaluation.runner import Complete, Estimate, cell, mean, share
from protocol.errors import BadInput
from protocol.messages import Prompt, StopRule
from protocol.settings import ContextSource

BASELINE = "none"
CONDITIONS: Mapping[str, Sequence[ContextSource]] = {
    BASELINE: (),
    "definitions": ("definitions",),
    "usages": ("usages",),
    "similar": ("similar",),
    "all": ("definitions", "usages", "similar"),
}
"""The sources of each condition. Recent edits are no part of a published package, so they are not measured.
"""

_OPEN_FILES = 4
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*")
_LANGUAGES: Sequence[Language] = ("python", "typescript")


@dataclass
class Desk:
    """An editor with a package's folder open: its index, and the files beside a task's that are open.

    Four other files of the package are open, two of them of the task's folder if it has as many, and each was viewed
    at its beginning and at one line; the seed chooses. They are the same in every condition.
    """

    seed: int
    tokens: int  # the budget for text of other files
    budget: WindowBudget
    _scratch: tempfile.TemporaryDirectory[str] = field(default_factory=tempfile.TemporaryDirectory)
    _texts: dict[Path, dict[str, str]] = field(default_factory=dict)
    _sources: dict[Path, Mapping[ContextSource, Source]] = field(default_factory=dict)
    _neighbours: NeighbourTexts = field(default_factory=NeighbourTexts)

    def prompt(self, task: CrossFileTask, sources: Sequence[ContextSource]) -> Prompt:
        """The prompt at the task's cursor."""
        folder = task.folder.as_uri()
        pool = SnippetPool(lambda _: False, lambda uri: shown_path(uri, [folder]))
        uri = (task.folder / task.path).as_uri()
        document = Document.from_text(uri, task.package.language, 1, task.before + task.after)
        cursor = document.nearest(Document.from_text(uri, "", 1, task.before).end)
        self._open_others(task, pool)
        place = place_of(document, cursor, pool)
        if "similar" in sources:
            known = {uri, *(each.uri for each in place.open_texts)}
            place = replace(place, neighbours=tuple(self._neighbours.read(neighbours_of(uri, known))))
        available = self._sources_of(task)
        pool.expect(uri)
        pool.gathered(uri, [each for name in sources if name in available for each in available[name].propose(place)], ())

        planner = PromptPlanner(
            document,
            self.budget,
            context=lambda budget, _: pool.context_for(uri, int(self.tokens * budget.chars_per_token), sources),
        )
        return planner.plan(cursor).prompt

    def close(self) -> None:
        """Delete the indexes."""
        self._scratch.cleanup()

    def _open_others(self, task: CrossFileTask, pool: SnippetPool) -> None:
        if task.folder not in self._texts:
            self._texts[task.folder] = source_files(task.package, task.folder)
        texts = self._texts[task.folder]
        rng = Random(f"{self.seed}/{task.name}")
        home = PurePosixPath(task.path).parent
        others = [path for path in texts if path != task.path]
        rng.shuffle(others)
        beside = [path for path in others if PurePosixPath(path).parent == home][: _OPEN_FILES // 2]
        for path in [*beside, *(path for path in others if path not in beside)][:_OPEN_FILES]:
            document = Document.from_text((task.folder / path).as_uri(), task.package.language, 1, texts[path])
            pool.visited(document, 0)
            pool.visited(document, rng.randrange(len(document.lines)))

    def _sources_of(self, task: CrossFileTask) -> Mapping[ContextSource, Source]:
        if task.folder not in self._sources:
            file = Path(self._scratch.name) / f"{len(self._sources)}.sqlite"
            writer = IndexWriter(file)
            scan(task.folder, writer, NO_RULES)
            writer.close()
            indexes = {task.folder: file}
            self._sources[task.folder] = {
                "definitions": Definitions(indexes),
                "usages": Usages(indexes),
                "similar": SimilarChunks(),
            }
        return self._sources[task.folder]


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


def collect_tasks(cache: Path | None, limit: int | None, seed: int, on_package: Callable[[str], None]) -> list[CrossFileTask]:
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
            gains = [float(each[condition].exact) - float(each[BASELINE].exact) for each in outcomes]  # task by task
            figures = {
                "exact match": share([each.exact for each in own]),
                "identifier match": share([each.identifiers for each in own]),
                "symbol shown": share([each.shown for each in own]),
                "points over none": mean(gains),
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
