"""The reasons why one client's documents get no suggestions: gathered, reported, and withdrawn when they end."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from lsp_server.core_client.link import PREFILL_SILENCE_S, LinkStatus
from lsp_server.filters.cursor_context import LONGEST_LINE
from lsp_server.suggesting import reasons
from lsp_server.suggesting.open_documents import OpenDocument, OpenDocuments
from lsp_server.suggesting.reasons import Reason
from lsp_server.suggesting.requests import Core


class Explainer:
    """The reasons of one client's documents.

    `on_reason` gets a document's URI and its new reason, or None. `on_refresh` gets the URI of one whose last request
    went unanswered, once nothing is in its way: the client should request again.
    """

    def __init__(
        self,
        documents: OpenDocuments,
        core: Core,
        on_reason: Callable[[str, Reason | None], None],
        on_refresh: Callable[[str], None],
    ) -> None:
        self._documents, self._core = documents, core
        self._on_reason, self._on_refresh = on_reason, on_refresh
        self.status = LinkStatus("stopped")  # of the core
        self.rivals: tuple[str, ...] = ()  # other extensions of the editor that suggest
        self._snoozed_until = 0.0  # by a clock that nobody sets; infinite for the rest of the session
        self._alarm: asyncio.TimerHandle | None = None
        self._reading: tuple[OpenDocument, int, int] | None = None  # whose prompt is computed: tokens, and of how many
        self._silence: asyncio.TimerHandle | None = None

    def waits_for_user(self, opened: OpenDocument) -> Reason | None:
        """Why the server answers no automatic request for the document; one that the user invokes passes."""
        if (switched := reasons.switched_off(opened.switch)) is not None:
            return switched
        if (left := self._snoozed_until - time.monotonic()) > 0:
            until = time.strftime("%H:%M", time.localtime(time.time() + left)) if math.isfinite(left) else ""
            return reasons.snoozed(until)
        return None if self._documents.settings.automatic else reasons.ON_REQUEST

    def switched_off(self, opened: OpenDocument) -> Reason | None:
        """Why the server answers no request at the document's cursor, apart from the exclusion rules and the core."""
        language_id = opened.document.language_id
        if language_id in self._documents.settings.disabled_languages:
            return reasons.language_off(language_id)
        if opened.out_of_step:
            return reasons.OUT_OF_STEP
        if len(opened.document.lines[opened.cursor.line]) > LONGEST_LINE:
            return reasons.long_line(LONGEST_LINE)
        return None

    def reason(self, opened: OpenDocument) -> Reason | None:
        """Why the document gets no suggestion now, or why its last request got none."""
        if (switched := self.switched_off(opened)) is not None:
            return switched
        if (verdict := opened.excluded) is not None and verdict.cause != "unchecked":
            return reasons.excluded(verdict, opened.document.uri)
        waiting = self.waits_for_user(opened)
        if waiting is not None and not opened.invoked and opened.outcome is None:
            return waiting
        if not self._core.ready and (core := reasons.of_core(self.status)) is not None:
            return core
        if self._reading is not None and self._reading[0] is opened:
            return reasons.reading(*self._reading[1:])
        return opened.outcome or reasons.rivals(self.rivals)

    def is_in_the_way(self, opened: OpenDocument) -> bool:
        """Whether something that will end keeps the document's requests from an answer."""
        reason = self.reason(opened)
        return reason is not None and reason.lasts

    def report(self, opened: OpenDocument) -> None:
        """Tell the document's reason if it has changed, and have the client request again once it gets suggestions."""
        if opened not in self._documents or (before := opened.reported) == (reason := self.reason(opened)):
            return
        opened.reported = reason
        self._on_reason(opened.document.uri, reason)
        if before is not None and before.lasts and (reason is None or not reason.lasts):
            if self.waits_for_user(opened) is None:  # otherwise it is the outcome of a request that the user invoked
                opened.outcome = None
            if opened.unanswered == (opened.edits, opened.cursor):
                opened.unanswered = None
                self._on_refresh(opened.document.uri)

    def closed(self, opened: OpenDocument) -> None:
        """Withdraw the reason of a document that was closed: it may be opened again."""
        if opened.reported is not None:
            opened.reported = None
            self._on_reason(opened.document.uri, None)

    def report_all(self, viewed: OpenDocument | None) -> None:
        """As `report`, for the viewed document and all that had a reason."""
        for uri in self._documents.uris:
            opened = self._documents[uri]
            if opened is viewed or opened.reported is not None:
                self.report(opened)

    def snooze(self, seconds: float, then: Callable[[], None]) -> None:
        """Suggest only on request for so long; infinite for the session, 0 ends it. `then` is called at the end."""
        self._snoozed_until = time.monotonic() + seconds
        if self._alarm is not None:
            self._alarm.cancel()
        if 0 < seconds < math.inf:
            self._alarm = asyncio.get_running_loop().call_later(seconds, then)

    def reading(self, opened: OpenDocument, tokens: tuple[int, int] | None) -> None:
        """The core computes the document's prompt: so many tokens of so many; None when that has ended."""
        if self._silence is not None:
            self._silence.cancel()
        self._reading = None if tokens is None else (opened, *tokens)
        if tokens is not None:
            self._silence = asyncio.get_running_loop().call_later(PREFILL_SILENCE_S, self.reading, opened, None)
        self.report(opened)
