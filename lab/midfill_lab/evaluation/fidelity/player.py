"""Plays what a model writes through the language server's parts, and accepts what is shown, as an editor does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from inference.text.stops import Stops
from lsp_server.editing.documents import Document, Edit, Position
from lsp_server.editing.positions import ClientPosition
from lsp_server.editing.spans import end_of
from lsp_server.features.suggestions import accepted_command, inline_item
from lsp_server.suggesting.editing_session import EditingSession
from lsp_server.suggesting.queries import Query
from midfill_lab.evaluation.fidelity.places import Place
from midfill_lab.evaluation.fidelity.verdicts import Verdict, verdict
from protocol.messages import Completion, CompletionRequest, Usage
from protocol.settings import Settings

_URI = "untitled:fidelity"
_NO_USAGE = Usage(0, 0, 0, 0, 0.0, 0.0, 0.0)


def play(places: Iterable[Place], settings: Settings) -> Iterator[tuple[Place, str | None, Verdict]]:
    """For each place the document after acceptance, None without a suggestion, and what became of the text."""
    with asyncio.Runner() as runner:
        player = Player(settings)
        for place in places:
            accepted = runner.run(player.accepted(place))
            yield place, accepted, verdict(place, accepted)


class AuthorCore:
    """A core whose model writes a given text, which ends by the core's own rules."""

    ready = True
    chars_per_token = 3.0

    def __init__(self) -> None:
        self.text = ""

    async def complete(self, request: CompletionRequest) -> Completion:
        if not request.max_tokens:
            return Completion("", "length", _NO_USAGE)
        stops = Stops(request.stop, request.stop_texts, request.prompt.suffix)
        for length in range(1, len(self.text) + 1):
            if (end := stops.find(self.text[:length])) is not None:
                return Completion(self.text[:end], "stop", _NO_USAGE, mean_logprob=0.0)
        text, reason = stops.last(self.text, "stop")
        return Completion(text, reason, _NO_USAGE, mean_logprob=0.0)

    def forget(self, session: str) -> None:
        """There is nothing to forget."""

    def release(self, session: str) -> None:
        """There is nothing to release."""


class Player:
    """One client's editing session, without an editor."""

    def __init__(self, settings: Settings) -> None:
        self._core = AuthorCore()
        self._session = EditingSession(self._core, settings, "fidelity", lambda _: None)
        self._version = 0

    async def accepted(self, place: Place) -> str | None:
        """The document after the suggestion at this place was accepted; None if there was none."""
        self._core.text = place.model
        self._version += 1
        opened = self._session.open(_URI, place.language_id, self._version, place.head + place.tail)
        try:
            cursor = end_of(Position(0, 0), place.head)
            insertions = await self._session.suggest(opened, Query(cursor))
            if not insertions:
                return None
            codec = self._session.documents.codec
            item = inline_item(codec, opened.document, cursor, insertions[0], accepted_command(0, 0))
            document = Document.from_text(_URI, place.language_id, 1, opened.document.text)
            assert item.range is not None
            start, end = (
                codec.decode(document, ClientPosition(edge.line, edge.character))
                for edge in (item.range.start, item.range.end)
            )
            document.apply(Edit(start, end, str(item.insert_text)))
            return document.text
        finally:
            self._session.close(_URI)
