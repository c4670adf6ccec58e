"""From a cursor in an open document to a suggestion: what is at hand first, then the core; the latest request wins."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from lsp_server.core_link import LinkState
from lsp_server.documents import Document, Position, line_length
from lsp_server.offers import offer_at, rest_of
from lsp_server.open_documents import OpenDocument
from lsp_server.postprocess import Insertion, Place, postprocess
from lsp_server.stop_rules import stop_rule
from protocol.errors import Cancelled, CoreUnavailable, MidfillError
from protocol.heat import Heat, estimate_tokens, heat
from protocol.messages import Completion, CompletionRequest, StopRule, Usage
from protocol.settings import Settings

logger = logging.getLogger(__name__)

# After so many seconds without an edit, what the next keystrokes would have to compute is computed.
_IDLE_SECONDS = 2.0

_NOTHING_COMPUTED = Usage(0, 0, 0, 0, 0.0, 0.0, 0.0)


class Core(Protocol):
    """What suggesting needs of the core's link."""

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


class Suggester:
    """Answers for all documents. `session_prefix` tells this language server's documents from those of others."""

    def __init__(
        self,
        core: Core,
        settings: Settings,
        session_prefix: str,
        on_cost: Callable[[Cost], None],
        idle_s: float = _IDLE_SECONDS,
    ) -> None:
        self.settings = settings
        self._idle_s = idle_s
        self._core = core
        self._session_prefix = session_prefix
        self._on_cost = on_cost
        self._core_state: LinkState = "stopped"
        self._last: OpenDocument | None = None
        self._asked: dict[str, OpenDocument] = {}  # documents that prompts were made of
        self._idle: asyncio.TimerHandle | None = None

    async def suggest(self, opened: OpenDocument, cursor: Position) -> Insertion | None:
        """What to show at the cursor, or None: also where the document changes before it is known.

        Where the core would have to load its model first, it is set to work, and nobody waits.
        """
        self._look_at(opened, cursor)
        if not self._wanted(opened):
            return None
        if (insertion := self._typed_through(opened, cursor)) is not None:
            return insertion
        if not self._core.ready:
            opened.latest.start(self._ahead(opened, cursor))
            return None
        edits = opened.edits
        insertion = await opened.latest.run(self._ask(opened, cursor))
        return insertion if opened.edits == edits else None

    def look_ahead(self, opened: OpenDocument, cursor: Position | None = None) -> None:
        """Make the prompt at the cursor, or at the last one, resident in the background.

        A request for the same place goes on undisturbed; one for another place is superseded.
        """
        if opened.latest.busy and cursor in (None, opened.cursor):
            return
        self._look_at(opened, cursor or opened.cursor)
        if self._wanted(opened):
            opened.latest.start(self._ahead(opened, opened.cursor))

    def core_changed(self, state: LinkState) -> None:
        """When the core comes up, make the prompt of the last document resident, which also loads the model."""
        came_up = self._core_state in ("starting", "failed", "stopped") and state in ("unloaded", "loading", "ready")
        self._core_state = state
        if came_up and self._last is not None:
            self.look_ahead(self._last)

    def forget(self, uri: str) -> None:
        """Let the core drop what only this document used."""
        if self._last is not None and self._last.document.uri == uri:
            self._last = None
            if self._idle is not None:
                self._idle.cancel()
        if self._asked.pop(uri, None) is not None:
            self._core.forget(self._session(uri))

    def _session(self, uri: str) -> str:
        return f"{self._session_prefix}/{uri}"

    def _look_at(self, opened: OpenDocument, cursor: Position) -> None:
        """The user is here now; what is not to be computed before they type on waits until they rest."""
        opened.look_at(cursor)
        self._last = opened
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._at_idle, opened, opened.edits)

    def _at_idle(self, opened: OpenDocument, edits: int) -> None:
        """Lay a long increment's anchor anew while nobody waits for it."""
        if opened.edits != edits or opened.latest.busy or not self._wanted(opened):
            return
        if opened.planner.plan(opened.cursor, ahead=True).relaid:
            opened.latest.start(self._ahead(opened, opened.cursor))

    def _wanted(self, opened: OpenDocument) -> bool:
        self._purge_excluded({**self._asked, opened.document.uri: opened})
        if opened.excluded is not None or opened.out_of_step:
            return False
        return opened.document.language_id not in self.settings.disabled_languages

    def _purge_excluded(self, documents: Mapping[str, OpenDocument]) -> None:
        """Drop everything computed, if a document may not be used any more: prompts of others can hold its text."""
        excluded = [opened for opened in documents.values() if opened.becomes_excluded()]
        for opened in excluded:
            logger.info("%s enters no prompt: %s", opened.document.uri, opened.excluded)
        if excluded:
            for uri, opened in self._asked.items():
                opened.offer = None
                self._core.forget(self._session(uri))
            self._asked.clear()

    def _typed_through(self, opened: OpenDocument, cursor: Position) -> Insertion | None:
        """The rest of the last suggestion, if that is what the user types: nothing to compute."""
        if opened.offer is None or not (rest := rest_of(opened.offer, opened.document, cursor)):
            return None
        insertion = postprocess(rest, _place(opened, cursor))
        if not insertion.text:
            return None
        opened.latest.supersede()
        self._on_cost(_cost(opened, cursor, "typed", _NOTHING_COMPUTED, "hot", milliseconds=0.0))
        return insertion

    async def _ask(self, opened: OpenDocument, cursor: Position) -> Insertion | None:
        await asyncio.sleep(self.settings.debounce_ms / 1000)
        line = opened.document.lines[cursor.line]
        place = _place(opened, cursor)
        stop = stop_rule(line[: cursor.column], place.after, multi_line=self.settings.multi_line)
        completion = await self._complete(opened, cursor, self.settings.max_tokens, stop)
        if completion is None:
            return None
        opened.offer = offer_at(cursor, completion.text)
        insertion = postprocess(completion.text, place)
        return insertion if insertion.text else None

    async def _ahead(self, opened: OpenDocument, cursor: Position) -> None:
        await self._complete(opened, cursor, max_tokens=0, stop=StopRule())

    async def _complete(
        self, opened: OpenDocument, cursor: Position, max_tokens: int, stop: StopRule
    ) -> Completion | None:
        """The core's answer, its cost told; None if it has none, or if the document has changed meanwhile."""
        since, edits = time.perf_counter(), opened.edits
        prompt = opened.planner.plan(cursor, ahead=max_tokens == 0).prompt
        reuse = self.settings.strategy != "none"
        self._asked[opened.document.uri] = opened
        request = CompletionRequest(self._session(opened.document.uri), prompt, max_tokens, stop, reuse)
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
        if max_tokens > 0:
            opened.last_exchange = request, completion
        usage = completion.usage
        opened.planner.observe(prompt, usage.prompt_tokens)
        inserted_tokens = estimate_tokens(opened.inserted, self._core.chars_per_token)
        opened.inserted = ""
        warmth = heat(usage.recomputed_tokens, usage.prompt_tokens, inserted_tokens)
        milliseconds = (time.perf_counter() - since) * 1000
        self._on_cost(_cost(opened, cursor, "core", usage, warmth, milliseconds, ahead=max_tokens == 0))
        return completion


def _cost(
    opened: OpenDocument,
    cursor: Position,
    source: Literal["core", "typed"],
    usage: Usage,
    warmth: Heat,
    milliseconds: float,
    *,
    ahead: bool = False,
) -> Cost:
    document = opened.document
    return Cost(document.uri, document.version, cursor, source, ahead, milliseconds, warmth, usage)


def _place(opened: OpenDocument, cursor: Position) -> Place:
    line = opened.document.lines[cursor.line]
    end = line_length(line)
    return Place(line[cursor.column : end], line[end:] or _line_end(opened.document))


def _line_end(document: Document) -> str:
    """How the first line ends; \\n where there is only one."""
    first = document.lines[0]
    return first[line_length(first) :] or "\n"
