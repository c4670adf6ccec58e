"""Requests of all HTTP APIs: passes them to the scheduler, and their texts back while they grow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest

from inference.core.http.bodies import MAX_NAME_CHARS, BodyReader, completed, inward, outward
from inference.core.http.text_anchors import Files, TextAnchors, repeatable_prompt
from inference.core.scheduler import Scheduler
from inference.engine.request import Request
from inference.engine.sessions import session_key
from inference.text.fim import read_rendered, unknown_marker
from inference.text.rendered_next_edits import read_next_edit
from protocol.errors import MidfillError
from protocol.messages import (
    ANONYMOUS,
    MAX_COPIED_CHARS,
    MAX_SNIPPETS,
    MAX_STOP_TEXTS,
    Completion,
    CompletionRequest,
    Prompt,
    Snippet,
    StopRule,
    Usage,
)

logger = logging.getLogger(__name__)

NO_STOP = StopRule(indent=0)  # no line can dedent below 0
NO_PROMPT = Prompt("", "")
SESSION_HEADER = "X-Session-ID"
_MOST_MARKERS = 16  # in the log
_MOST_UNREAD = 64  # texts that wait for a reader, each with all of the text before


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A part of the answer: more text of one choice, or with `completion` its end."""

    choice: int
    text: str
    completion: Completion | None = None


class Asking:
    """Lays prompts and runs requests; shared by all APIs.

    Requests with the core's own token from one host count as one client. A request supersedes no other, and is
    cancelled when its client disconnects.
    """

    def __init__(self, scheduler: Scheduler, visit: Callable[[], AbstractContextManager[None]], anchors: TextAnchors) -> None:
        """`visit` counts a client as present for the duration of the context."""
        self.scheduler = scheduler
        self._visit = visit
        self._anchors = anchors
        self._unknown_markers: set[str] = set()  # that the log names already

    def around(
        self,
        http: HttpRequest,
        session: str,
        before: str,
        after: str,
        files: Files = (),
        *,
        repeatable: bool,
        prefetch: bool = False,
    ) -> Prompt:
        """The prompt for a cursor between two texts, with \\n for all line ends, as `TextAnchors.prompt` lays it.

        A `repeatable` one follows from these texts alone, and leaves the session's anchors as they are.
        """
        before, after = inward(before), inward(after)
        files = tuple(Snippet(file.path, inward(file.text)) for file in files)
        if repeatable:
            return repeatable_prompt(before, after, files)
        return self._anchors.prompt(session_key(session, user_of(http)), before, after, files, prefetch=prefetch)

    def laid(
        self, http: HttpRequest, wanted: CompletionRequest, text: str, suffix: str, *, repeatable: bool
    ) -> CompletionRequest:
        """The request for a text with a suffix, or without one, which may be a rendered prompt, else is before the cursor.

        The prompt of a next-edit model is computed as it is; a FIM prompt is laid anew. Raises HTTPException if it has
        more than MAX_SNIPPETS files.
        """
        if suffix:
            return replace(wanted, prompt=self.around(http, wanted.session, text, suffix, repeatable=repeatable))
        if (next_edit := read_next_edit(text)) is not None:
            prompt = Prompt("", "", marked=next_edit.parts)
            stop_texts = tuple(dict.fromkeys((*next_edit.stop_texts, *wanted.stop_texts)))[:MAX_STOP_TEXTS]
            copies = next_edit.copies[:MAX_COPIED_CHARS]
            return replace(wanted, prompt=prompt, stop_texts=stop_texts, copies=copies)
        parts = read_rendered(inward(text))
        if parts is None:
            self._warn_of_another_model(text)
            return replace(wanted, prompt=self.around(http, wanted.session, text, "", repeatable=repeatable))
        if len(parts.files) > MAX_SNIPPETS:
            raise HTTPException(422, f"the prompt has more than {MAX_SNIPPETS} files")
        prompt = self.around(http, wanted.session, parts.before, parts.after, parts.files, repeatable=repeatable)
        return replace(wanted, prompt=prompt)

    def _warn_of_another_model(self, text: str) -> None:
        """Log once that a client's prompt was written for a model that midfill does not know."""
        marker = unknown_marker(text)
        if marker is not None and marker not in self._unknown_markers and len(self._unknown_markers) < _MOST_MARKERS:
            self._unknown_markers.add(marker)
            logger.warning(
                "a prompt begins with %s: it was written for another model, and is taken as plain text. Correct the "
                "client's FIM template, or have the client send prefix and suffix",
                marker,
            )

    async def pieces(
        self, http: HttpRequest, wanted: CompletionRequest, count: int = 1, *, grows: bool, line_end: str = "\n"
    ) -> AsyncGenerator[TextPiece]:
        """The texts of `count` choices with the client's line ends, one after another: while they grow, or whole.

        Greedy choices after the first are alternatives; where the model has no more, the first again. The usages of
        all choices add up to the cost of the request.
        """
        if wanted.sampling is not None:
            for number in range(count):
                drawn = replace(wanted.sampling, seed=wanted.sampling.seed + number)
                one = replace(wanted, sampling=drawn)
                async for piece in self._texts(http, one, number, grows=grows, line_end=line_end):
                    yield piece
            return
        several = replace(wanted, alternatives=count - 1)
        async for piece in self._texts(http, several, 0, grows=grows, line_end=line_end):
            yield piece
            if piece.completion is not None:
                for number, other in enumerate(_others(piece.completion, count - 1), 1):
                    yield TextPiece(number, other.text, other)

    async def _texts(
        self, http: HttpRequest, wanted: CompletionRequest, choice: int, *, grows: bool, line_end: str
    ) -> AsyncGenerator[TextPiece]:
        """The pieces of one request; the prompt counts with the first choice."""
        shown = ""
        async with aclosing(self._answers(http, wanted, grows=grows)) as answers:
            async for answer in answers:
                text = outward(answer if isinstance(answer, str) else answer.text, line_end)
                more, shown = text[len(shown) :], max(shown, text, key=len)
                if isinstance(answer, Completion):
                    counted = {"prompt_tokens": 0, "recomputed_tokens": 0} if choice else {}
                    ended = replace(completed(answer, line_end), usage=replace(answer.usage, **counted))
                    yield TextPiece(choice, more, ended)
                elif more:
                    yield TextPiece(choice, more)

    async def _answers(self, http: HttpRequest, wanted: CompletionRequest, *, grows: bool) -> AsyncGenerator[str | Completion]:
        """The text so far, again and again if it `grows`, then the completion; raises the error that it ends with."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[str | Completion | MidfillError] = asyncio.Queue(_MOST_UNREAD)

        def put(what: str | Completion | MidfillError) -> None:
            if arrived.full():
                arrived.get_nowait()  # a later text, or the completion, has all of it
            arrived.put_nowait(what)

        def changed(request: Request) -> None:
            what = request.outcome
            if not loop.is_closed() and (what is not None or request.text):
                loop.call_soon_threadsafe(put, what if isinstance(what, Completion | MidfillError) else request.text)

        client = f"http {http.client.host if http.client else ''}"
        request = Request(wanted, client, user_of(http), changed, supersedes=False, grows=grows)
        with self._visit():
            self.scheduler.submit(request)
            watch = asyncio.create_task(self._cancel_when_gone(http, request))
            try:
                while True:
                    what = await arrived.get()
                    if isinstance(what, MidfillError):
                        raise what
                    yield what
                    if isinstance(what, Completion):
                        return
            finally:
                watch.cancel()
                self.scheduler.cancel(request)

    async def _cancel_when_gone(self, http: HttpRequest, request: Request) -> None:
        while (await http.receive())["type"] != "http.disconnect":
            pass
        self.scheduler.cancel(request)


def user_of(http: HttpRequest) -> str:
    """The name of the user whose token the request carries; empty for the core's own token."""
    return str(http.scope["user"].name)


def session_of(http: HttpRequest, *names: str | int | None) -> str:
    """The name of a request's session: its header, else the first of the `names` that is not empty, else none.

    Raises HTTPException if the header is longer than MAX_NAME_CHARS.
    """
    header = http.headers.get(SESSION_HEADER, "")
    if len(header) > MAX_NAME_CHARS:
        raise HTTPException(422, f"{SESSION_HEADER} has {len(header)} characters: at most {MAX_NAME_CHARS} are allowed")
    name = next((str(name) for name in (header, *names) if name not in ("", None)), "")
    return f"http/{name}" if name else ANONYMOUS


async def whole(pieces: AsyncIterable[TextPiece]) -> list[Completion]:
    """The completions of all choices in the order of their ends, each with the text of its pieces."""
    texts: dict[int, str] = {}
    completions = []
    async for piece in pieces:
        texts[piece.choice] = texts.get(piece.choice, "") + piece.text
        if piece.completion is not None:
            completions.append(replace(piece.completion, text=texts[piece.choice]))
    return completions


def _others(first: Completion, count: int) -> Iterator[Completion]:
    """The alternatives as completions of their own, whose cost counts with the first; it fills their number up."""
    free = Usage(0, 0, 0, 0, 0.0, 0.0, 0.0)
    for other in first.alternatives:
        yield replace(first, text=other.text, finish_reason=other.finish_reason, tokens=(), usage=free)
    for _ in range(len(first.alternatives), count):
        yield replace(first, usage=free)


def cached_tokens(prompt_tokens: int, recomputed_tokens: int) -> int:
    """Number of prompt tokens that were resident; healing can recompute more than the prompt has."""
    return max(0, prompt_tokens - recomputed_tokens)


class Api:
    """A handler reads its body by `_bodies`, and answers from the pieces that `_asking` gives."""

    def __init__(self, asking: Asking, bodies: BodyReader) -> None:
        self._asking = asking
        self._bodies = bodies
        self._started = datetime.now(UTC)

    @property
    def _model(self) -> str:
        return self._asking.scheduler.status.model
