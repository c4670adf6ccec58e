"""Asking the core on behalf of a document: its session there, what each answer cost, and what is to be forgotten."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from lsp_server.documents import Position
from lsp_server.open_documents import OpenDocument
from lsp_server.queries import Query
from protocol.errors import Cancelled, CoreUnavailable, MidfillError
from protocol.heat import Heat, estimate_tokens, heat
from protocol.messages import Completion, CompletionRequest, StopRule, Usage
from protocol.settings import Settings

logger = logging.getLogger(__name__)

_NOTHING_COMPUTED = Usage(0, 0, 0, 0, 0.0, 0.0, 0.0)


class Core(Protocol):
    """What asking needs of the core's link."""

    @property
    def ready(self) -> bool: ...

    @property
    def chars_per_token(self) -> float: ...

    async def complete(self, request: CompletionRequest) -> Completion: ...

    def forget(self, session: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Cost:
    """What one prompt cost; `milliseconds` from the request to its answer."""

    uri: str
    version: int
    cursor: Position
    source: Literal["core", "typed"]
    ahead: bool
    milliseconds: float
    heat: Heat
    usage: Usage


class Asker:
    """Asks for all documents. `session_prefix` tells this language server's documents from those of others."""

    def __init__(self, core: Core, session_prefix: str, on_cost: Callable[[Cost], None]) -> None:
        self._core = core
        self._session_prefix = session_prefix
        self._on_cost = on_cost
        self._asked: dict[str, OpenDocument] = {}  # documents that prompts were made of

    async def suggest(
        self, opened: OpenDocument, query: Query, settings: Settings, stop: StopRule
    ) -> Completion | None:
        """The core's suggestion; None if it has none, or if the document has changed meanwhile."""
        prompt = query.prompt(opened.planner.plan(query.cursor).prompt, opened.document)
        request = CompletionRequest(
            session=self._session(opened.document.uri),
            prompt=prompt,
            max_tokens=settings.max_tokens,
            stop=stop,
            reuse=settings.strategy != "none",
            alternatives=settings.alternatives if query.invoked else 0,
        )
        completion = await self._complete(opened, query.cursor, request)
        if completion is not None:
            opened.last_exchange = request, completion
        return completion

    async def look_ahead(self, opened: OpenDocument, cursor: Position, settings: Settings) -> None:
        """Make the prompt at the cursor resident."""
        prompt = opened.planner.plan(cursor, ahead=True).prompt
        reuse = settings.strategy != "none"
        request = CompletionRequest(self._session(opened.document.uri), prompt, max_tokens=0, reuse=reuse)
        await self._complete(opened, cursor, request)

    def typed(self, opened: OpenDocument, cursor: Position) -> None:
        """Tell that nothing had to be asked: the user types what was suggested."""
        document = opened.document
        cost = Cost(document.uri, document.version, cursor, "typed", False, 0.0, "hot", _NOTHING_COMPUTED)
        self._on_cost(cost)

    def purge_excluded(self, looked_at: OpenDocument) -> None:
        """Drop everything computed, if a document may not be used any more: prompts of others can hold its text."""
        documents: Mapping[str, OpenDocument] = {**self._asked, looked_at.document.uri: looked_at}
        excluded = [opened for opened in documents.values() if opened.becomes_excluded()]
        for opened in excluded:
            logger.info("%s enters no prompt: %s", opened.document.uri, opened.excluded)
        if excluded:
            for uri, opened in self._asked.items():
                opened.offers = ()
                self._core.forget(self._session(uri))
            self._asked.clear()

    def forget(self, uri: str) -> None:
        """Let the core drop what only this document used."""
        if self._asked.pop(uri, None) is not None:
            self._core.forget(self._session(uri))

    def _session(self, uri: str) -> str:
        return f"{self._session_prefix}/{uri}"

    async def _complete(self, opened: OpenDocument, cursor: Position, request: CompletionRequest) -> Completion | None:
        """The core's answer, its cost told; None if it has none, or if the document has changed meanwhile."""
        since, edits = time.perf_counter(), opened.edits
        self._asked[opened.document.uri] = opened
        try:
            completion = await self._core.complete(request)
        except (Cancelled, CoreUnavailable) as error:
            logger.debug("no suggestion in %s: %s", opened.document.uri, error)
            return None
        except MidfillError as error:
            logger.warning("no suggestion in %s: %s", opened.document.uri, error)
            return None
        if completion.finish_reason == "cancelled" or opened.edits != edits:
            return None
        opened.planner.observe(request.prompt, completion.usage.prompt_tokens)
        self._tell_cost(opened, cursor, completion.usage, (time.perf_counter() - since) * 1000)
        return completion

    def _tell_cost(self, opened: OpenDocument, cursor: Position, usage: Usage, milliseconds: float) -> None:
        inserted_tokens = estimate_tokens(opened.inserted, self._core.chars_per_token)
        opened.inserted = ""
        warmth = heat(usage.recomputed_tokens, usage.prompt_tokens, inserted_tokens)
        document, ahead = opened.document, not opened.latest.awaited
        self._on_cost(Cost(document.uri, document.version, cursor, "core", ahead, milliseconds, warmth, usage))
