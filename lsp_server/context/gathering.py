"""Gathers proposals for a document in a thread, so that laying an anchor takes only what is ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path

from lsp_server.context.document_sources import RecentEdits, SimilarChunks
from lsp_server.context.index_sources import Definitions, NeighbourTexts, Usages, neighbours_of
from lsp_server.context.proposals import CutSnippet, FileText, PromptPlace, Source, TextProposal
from lsp_server.context.snippet_pool import OpenText, SnippetPool
from lsp_server.context.staged_changes import StagedChanges
from lsp_server.documents.documents import Document, Position
from lsp_server.documents.languages import related
from lsp_server.exclusion.exclusion import Verdicts
from protocol.settings import ContextSource

logger = logging.getLogger(__name__)

_HEAD_LINES = 300  # of a document, where its imports are
_LINES_AROUND = 60
_MAX_OPEN_TEXTS = 20
_MAX_LINES = 2_000  # of another open document, around where the user was


def place_of(document: Document, cursor: Position, pool: SnippetPool) -> PromptPlace:
    """A snapshot of what sources may read for a prompt at the cursor."""
    lines, (line, column) = document.lines, cursor
    return PromptPlace(
        uri=document.uri,
        language_id=document.language_id,
        head=tuple(lines[:_HEAD_LINES]),
        before=(*lines[max(0, line - _LINES_AROUND) : line], lines[line][:column]),
        after=(lines[line][column:], *lines[line + 1 : line + 1 + _LINES_AROUND]),
        open_texts=tuple(_open_texts(document, pool)),
        edited=tuple(pool.edits(document.uri)),
    )


def _open_texts(document: Document, pool: SnippetPool) -> Iterator[FileText]:
    others = (each for each in pool.documents if each.document.uri != document.uri)
    alike = (each for each in others if related(each.document.language_id, document.language_id))
    for each in islice(alike, _MAX_OPEN_TEXTS):
        first = _first_line(each)
        yield FileText(each.document.uri, tuple(each.document.lines[first : first + _MAX_LINES]), first)


def _first_line(opened: OpenText) -> int:
    """The first line to read of a document, so that the user's last place lies in the middle of what is read."""
    return max(0, min(opened.line - _MAX_LINES // 2, len(opened.document.lines) - _MAX_LINES))


class Gathering:
    """Runs the sources that read files or compare text, one place at a time.

    `indexes` gives the index file of each workspace folder.
    """

    def __init__(self, pool: SnippetPool, verdicts: Verdicts, indexes: Mapping[Path, Path]) -> None:
        self._pool = pool
        self._verdicts = verdicts
        self._sources: Mapping[ContextSource, Source] = {
            "definitions": Definitions(indexes),
            "usages": Usages(indexes),
            "similar": SimilarChunks(),
            "edits": RecentEdits(),
            "staged": StagedChanges(),
        }
        self._texts = NeighbourTexts()
        self._thread = ThreadPoolExecutor(1, "context")
        self._running: asyncio.Task[None] | None = None

    async def gather(self, document: Document, cursor: Position, enabled: Collection[ContextSource]) -> None:
        """Let the pool know what the enabled sources propose for this place; a failure is logged, and changes nothing.

        If the caller is cancelled, the work goes on, and the next call waits for it.
        """
        if not self._sources.keys() & set(enabled):
            return
        self._pool.expect(document.uri)
        while self._running is not None and not self._running.done():
            await asyncio.wait([self._running])
        self._running = asyncio.create_task(self._gather(document, cursor, enabled))
        await asyncio.shield(self._running)

    async def _gather(self, document: Document, cursor: Position, enabled: Collection[ContextSource]) -> None:
        in_thread = asyncio.get_running_loop().run_in_executor
        place = place_of(document, cursor, self._pool)
        beside: list[str] = []
        try:
            if "similar" in enabled:
                known = {document.uri, *(each.uri for each in place.open_texts)}
                beside = await in_thread(self._thread, neighbours_of, document.uri, known)
                await self._verdicts.look(beside)
            allowed = [uri for uri in beside if not self._verdicts.is_excluded(uri)]
            snippets = tuple(self._pool.selection(document.uri))
            proposals, gone = await in_thread(self._thread, self._propose, place, allowed, enabled, snippets)
            await self._verdicts.look({each.uri for each in proposals})
        except Exception:  # a fault in a source costs its proposals, never the suggestion
            logger.exception("no proposals for %s", document.uri)
            return
        self._pool.gathered(document.uri, proposals, gone)

    def _propose(
        self, place: PromptPlace, beside: Sequence[str], enabled: Collection[ContextSource], snippets: Sequence[CutSnippet]
    ) -> tuple[list[TextProposal], frozenset[CutSnippet]]:
        place = replace(place, neighbours=tuple(self._texts.read(beside)))
        proposals = [each for name in self._sources if name in enabled for each in self._sources[name].propose(place)]
        staged, texts = [each for each in snippets if each.origin == "staged"], {each.text for each in proposals}
        read = [each for each in snippets if each.origin != "staged"]
        return proposals, self._texts.gone(read) | {each for each in staged if each.snippet.text not in texts}
