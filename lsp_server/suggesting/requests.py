"""Requests to the core for documents: those of the user, those that prefetch, their costs, and purges of text."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from lsp_server.context.index.keeper import runs_on_battery
from lsp_server.documents.documents import Position
from lsp_server.exclusion.ignore_files import Verdict
from lsp_server.filters.likely import LEAST_PROBABILITY
from lsp_server.prompts.planner import Plan
from lsp_server.suggesting.open_documents import OpenDocument, OpenDocuments
from lsp_server.suggesting.queries import Query
from lsp_server.suggesting.reasons import request_failed
from protocol.errors import Cancelled, CoreUnavailable, MidfillError
from protocol.messages import CacheOutcome, Completion, CompletionRequest, StopRule, Usage, cache_outcome, estimate_tokens
from protocol.settings import Settings

logger = logging.getLogger(__name__)

# So long after an edit the user counts as editing; who only reads moves the cursor for longer.
_EDITING_S = 300.0

# A client announces a view of a document by several messages: its focus, then its cursor.
_ARRIVING_S = 1.0

# The power supply is asked at most so often.
_POWER_S = 60.0


class Preparing:
    """Judges documents by the setting `prepareAhead`.

    While the user edits, a document that was edited lately is prepared at each cursor move, and of the others the one
    that the user goes to first after an edit, once. So who goes from one file to the next and types finds it ready,
    and who looks through files, or clicks around in one, costs nothing.
    """

    def __init__(
        self, documents: OpenDocuments, on_battery: Callable[[], bool] | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._documents = documents
        self._ask_power = on_battery or runs_on_battery
        self._now = now
        self._on_battery = False
        self._asked_at = -math.inf
        self._followed_edit = -math.inf  # the latest edit when a document without one was last prepared
        self._guest: OpenDocument | None = None  # this document
        self._arrived_at = -math.inf

    def allows(self, opened: OpenDocument) -> bool:
        """Whether the prompt of the user's place in the document is to be made resident now."""
        settings = self._documents.settings
        if settings.prepare_ahead != "editing":
            return settings.prepare_ahead == "always"
        if self._on_battery and not settings.core:  # a core on another machine has power of its own
            return False
        now, edits = self._now(), [(each.session, each.edited_at) for each in self._documents]
        if any(session == opened.session and now - at <= _EDITING_S for session, at in edits):
            return True
        if opened is self._guest and now - self._arrived_at <= _ARRIVING_S:
            return True
        latest = max((at for _, at in edits), default=-math.inf)
        if latest <= self._followed_edit or now - latest > _EDITING_S:
            return False
        self._guest, self._arrived_at, self._followed_edit = opened, now, latest
        return True

    def rest(self) -> None:
        """Renew what is known of the power supply; call it where no user waits."""
        if self._now() - self._asked_at >= _POWER_S and self._documents.settings.prepare_ahead == "editing":
            self._asked_at, self._on_battery = self._now(), self._ask_power()


# How many further documents each check of the exclusion rules includes, in turn.
_LOOKED_AT_IN_TURN = 32

LONGEST_PREFILL_MS = 1750
"""A suggestion that a short prompt brings so much sooner comes from it; less is waited for, as after an edit behind the
cursor: at 650 tokens a second, a shorter wait would let a session without announced moves recompute 4 % more."""

_NOTHING_COMPUTED = Usage(0, 0, 0, 0, 0.0, 0.0, 0.0)


class Core(Protocol):
    """The interface of the core's link for requests."""

    @property
    def ready(self) -> bool: ...

    @property
    def chars_per_token(self) -> float: ...

    async def complete(self, request: CompletionRequest) -> Completion: ...

    def forget(self, session: str) -> None: ...

    def release(self, session: str) -> None: ...


@dataclass(frozen=True, slots=True)
class PromptCost:
    """The cost of one prompt; `milliseconds` from the request to its answer."""

    uri: str
    version: int
    cursor: Position
    source: Literal["core", "typed"]
    is_prefetch: bool
    milliseconds: float
    cache_outcome: CacheOutcome
    usage: Usage


@dataclass(slots=True)
class _PromptSources:
    """A document that prompts were made for, and the URIs of their snippets' documents, open or closed by now."""

    opened: OpenDocument | None
    """None once it is closed."""
    sources: set[str] = field(default_factory=set)


class RequestSender:
    """Sends the requests of all documents. `session_prefix` separates this language server's sessions from others'."""

    def __init__(self, core: Core, session_prefix: str, on_cost: Callable[[PromptCost], None], max_prefill_ms: int = 0) -> None:
        self._core = core
        self._max_prefill_ms = max_prefill_ms
        self._session_prefix = session_prefix
        self._on_cost = on_cost
        self._prompt_sources: dict[str, _PromptSources] = {}
        self._resident: dict[str, None] = {}  # URIs of documents whose text entered prompts; next in turn first

    def request(self, opened: OpenDocument, query: Query, plan: Plan, settings: Settings, stop: StopRule) -> CompletionRequest:
        """The request for a suggestion by this plan."""
        return CompletionRequest(
            session=self._session(opened.session),
            prompt=query.prompt(plan.prompt, opened.document),
            max_tokens=settings.max_tokens,
            stop=stop,
            reuse=settings.strategy != "none",
            alternatives=settings.alternatives if query.invoked else 0,
            best_of=1 + settings.alternatives if query.invoked else 1,
            token_logprobs=True,
            min_probability=LEAST_PROBABILITY if settings.shorten_unlikely and not query.invoked else 0.0,
            max_prefill_ms=self._max_prefill_ms,
        )

    async def complete(self, opened: OpenDocument, cursor: Position, plan: Plan, request: CompletionRequest) -> Completion | None:
        """The core's completion, its cost reported; None if it has none, or the document changed or was excluded."""
        since, edits = time.perf_counter(), opened.edits
        prompted = self._prompt_sources.setdefault(opened.session, _PromptSources(opened))
        prompted.opened = opened
        prompted.sources |= plan.sources
        for uri in (opened.document.uri, *plan.sources):
            self._resident.setdefault(uri)
        try:
            completion = await self._core.complete(request)
        except Cancelled as error:
            logger.debug("no suggestion in %s: %s", opened.document.uri, error)
            return None
        except MidfillError as error:
            level = logging.DEBUG if isinstance(error, CoreUnavailable) else logging.WARNING
            logger.log(level, "no suggestion in %s: %s", opened.document.uri, error)
            opened.outcome = request_failed(error)
            if isinstance(error, CoreUnavailable) and request.max_tokens:
                opened.unanswered = edits, cursor  # until there is a core again
            return None
        if completion.finish_reason == "cancelled" or opened.edits != edits or opened.excluded is not None:
            return None
        if not completion.is_short:
            opened.planner.observe(request.prompt, completion.usage.prompt_tokens)
        self._report_cost(opened, cursor, completion.usage, (time.perf_counter() - since) * 1000)
        opened.lacks_prompt = completion.is_short
        if request.max_tokens:
            opened.last_exchange = request, completion
        return completion

    async def prefetch(self, opened: OpenDocument, cursor: Position, settings: Settings) -> None:
        """Make the prompt at the cursor resident: after a short one, that of the same anchor, which keys use next."""
        plan = opened.plan(cursor, prefetch=not opened.lacks_prompt)
        reuse = settings.strategy != "none"
        request = CompletionRequest(self._session(opened.session), plan.prompt, max_tokens=0, reuse=reuse)
        await self.complete(opened, cursor, plan, request)

    def typed(self, opened: OpenDocument, cursor: Position) -> None:
        """Report the cost of an answer from the last suggestion: zero, since the core computed nothing."""
        document = opened.document
        cost = PromptCost(document.uri, document.version, cursor, "typed", False, 0.0, "hit", _NOTHING_COMPUTED)
        self._on_cost(cost)

    async def look_at_rules(self, opened: OpenDocument) -> None:
        """Return when the exclusion verdicts of all documents that the next prompt may use are recent.

        Purges the text of newly excluded documents.
        """
        verdicts = opened.workspace.verdicts
        await verdicts.look(self._concerned(opened), self._next_in_turn())
        if excluded := verdicts.take_excluded():
            self._purge(opened, excluded)

    def renew_rules(self, opened: OpenDocument) -> None:
        """Renew the verdicts in the background, so that the next request does not wait for them."""
        opened.workspace.verdicts.renew(self._concerned(opened), self._next_in_turn())

    def release(self, uri: str) -> None:
        """Tell the core that this document was closed. Its KV stays resident, and so does the record of it here."""
        if (prompted := self._prompt_sources.get(uri)) is not None:
            prompted.opened = None
            self._core.release(self._session(uri))

    def forget(self, closed: OpenDocument) -> None:
        """Have the core drop what it has of this document, which no other document's prompt held."""
        self._prompt_sources.pop(closed.session, None)
        self._resident.pop(closed.document.uri, None)
        self._core.forget(self._session(closed.session))

    def _concerned(self, opened: OpenDocument) -> set[str]:
        """The URIs of the documents whose text this one's next prompt may hold, or its earlier prompts held."""
        uri = opened.document.uri
        prompted = self._prompt_sources.get(opened.session)
        return {uri, *opened.workspace.pool.uris_for(opened.session), *(prompted.sources if prompted is not None else ())}

    def _next_in_turn(self) -> Iterator[str]:
        """Some of the documents whose text may be resident, in turn, so that no call checks all of them."""
        for _ in range(min(_LOOKED_AT_IN_TURN, len(self._resident))):
            uri = next(iter(self._resident))
            self._resident[uri] = self._resident.pop(uri)
            yield uri

    def _purge(self, looked_at: OpenDocument, excluded: Mapping[str, Verdict]) -> None:
        """Drop the KV that may hold text of newly excluded documents.

        If such a document's text entered a prompt, its own or as a snippet, every session is dropped, open or closed.
        Otherwise only its own session is dropped: an earlier run may have left it on disk. A document that stays in its
        own prompts keeps its session, unless its text was a snippet in others. A session that is dropped has no request
        any more: the core cancels it.
        """
        out = {uri for uri in excluded if looked_at.workspace.verdicts.own(uri) is not None}
        for uri, verdict in excluded.items():
            level = logging.WARNING if uri in out else logging.INFO
            prompts = "prompts" if uri in out else "other documents' prompts"
            logger.log(level, "%s is excluded from %s: %s", uri, prompts, verdict.rule)
        sessions = out | {looked_at.session} if looked_at.document.uri in out else out  # a cell's is its notebook's
        for uri in excluded.keys() | sessions:
            looked_at.workspace.pool.closed(uri)
        snippets = {uri for prompted in self._prompt_sources.values() for uri in prompted.sources}
        if (out & self._resident.keys()) | (excluded.keys() & snippets):
            sessions = sessions | self._prompt_sources.keys()
            for prompted in self._prompt_sources.values():
                if prompted.opened is not None:
                    prompted.opened.suggestions, prompted.opened.last_exchange = (), None
            self._prompt_sources.clear()
            self._resident.clear()
        for uri in sessions:
            self._core.forget(self._session(uri))

    def _session(self, uri: str) -> str:
        return f"{self._session_prefix}/{uri}"

    def _report_cost(self, opened: OpenDocument, cursor: Position, usage: Usage, milliseconds: float) -> None:
        inserted_tokens = estimate_tokens(opened.inserted_chars, self._core.chars_per_token)
        opened.inserted_chars = 0
        outcome = cache_outcome(usage, inserted_tokens)
        document, prefetch = opened.document, not opened.latest.awaited
        self._on_cost(PromptCost(document.uri, document.version, cursor, "core", prefetch, milliseconds, outcome, usage))
