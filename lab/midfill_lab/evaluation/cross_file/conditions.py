"""Lays a task's prompt as the language server does, with the sources of one condition."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from random import Random

from lsp_server.context.gathering import place_of
from lsp_server.context.index.database import IndexWriter
from lsp_server.context.index.scan import NO_RULES, scan
from lsp_server.context.neighbours import NeighbourTexts, neighbours_of
from lsp_server.context.proposals import Source
from lsp_server.context.ring import ContextRing
from lsp_server.context.sources.definitions import Definitions
from lsp_server.context.sources.similar import SimilarChunks
from lsp_server.context.sources.usages import Usages
from lsp_server.editing.documents import Document
from lsp_server.editing.file_uris import shown_path
from lsp_server.prompts.planner import PromptPlanner
from lsp_server.prompts.windows import WindowBudget
from midfill_lab.evaluation.cross_file.tasks import CrossFileTask, source_files
from protocol.messages import Prompt
from protocol.settings import ContextSource

TODAY = "visits"
CONDITIONS: Mapping[str, Sequence[ContextSource]] = {
    "none": (),
    TODAY: ("visits",),
    "definitions": ("definitions",),
    "usages": ("usages",),
    "similar": ("similar",),
    "all": ("definitions", "usages", "similar", "visits"),
}
"""The sources of each condition; `visits` is all that midfill had before it had the others.

Recent edits are no part of a published package, so they are not measured.
"""

_OPEN_FILES = 4


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
        ring = ContextRing(lambda _: False, lambda uri: shown_path(uri, [folder]))
        uri = (task.folder / task.path).as_uri()
        document = Document.from_text(uri, task.package.language, 1, task.before + task.after)
        cursor = document.nearest(Document.from_text(uri, "", 1, task.before).end)
        self._open_others(task, ring)
        place = place_of(document, cursor, ring)
        if "similar" in sources:
            known = {uri, *(each.uri for each in place.open_texts)}
            place = replace(place, neighbours=tuple(self._neighbours.read(neighbours_of(uri, known))))
        available = self._sources_of(task)
        ring.gathered(
            uri, [each for name in sources if name in available for each in available[name].propose(place)], ()
        )

        planner = PromptPlanner(
            document,
            self.budget,
            context=lambda budget, _: ring.context_for(
                uri, task.package.language, int(self.tokens * budget.chars_per_token), sources
            ),
        )
        return planner.plan(cursor).prompt

    def close(self) -> None:
        """Delete the indexes."""
        self._scratch.cleanup()

    def _open_others(self, task: CrossFileTask, ring: ContextRing) -> None:
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
            ring.visited(document, 0)
            ring.visited(document, rng.randrange(len(document.lines)))

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
