"""Passes the HTTP requests of all APIs to the scheduler, and its texts back while they grow."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request

from inference.scheduling.job_queue import Outcome
from inference.scheduling.scheduler import Scheduler
from inference.server.http.bodies import MAX_SESSION_CHARS
from inference.server.http.text_anchors import Files, TextAnchors
from inference.text.rendered_prompts import read_rendered
from protocol.errors import MidfillError
from protocol.messages import ANONYMOUS, Completion, CompletionRequest, Prompt, Sampling, StopRule, Usage

NO_STOP = StopRule(indent=0)  # no line can dedent below 0
SESSION_HEADER = "X-Session-ID"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the answer: more text of one choice, or with `completion` its end."""

    choice: int
    text: str
    completion: Completion | None = None


class Asking:
    """Lays prompts and runs requests; shared by all APIs.

    All requests from one host count as one client, since HTTP requests carry no other identity. A request supersedes no
    other, and is cancelled when its client disconnects.
    """

    def __init__(self, scheduler: Scheduler, visit: Callable[[], AbstractContextManager[None]]) -> None:
        """`visit` counts a client as present for the duration of the context."""
        self.scheduler = scheduler
        self._visit = visit
        self._anchors = TextAnchors()

    def around(self, session: str, before: str, after: str, files: Files = (), *, ahead: bool = False) -> Prompt:
        """The prompt for a cursor between two texts; `ahead` says that it is only made resident."""
        return self._anchors.prompt(session, before, after, files, ahead=ahead)

    def rendered(self, session: str, text: str) -> Prompt:
        """The prompt for a text that may be a rendered FIM prompt; any other is the text before the cursor."""
        parts = read_rendered(text)
        if parts is None:
            return self.around(session, text, "")
        return self.around(session, parts.before, parts.after, parts.files)

    async def completion(self, request: Request, wanted: CompletionRequest) -> Completion:
        """The completion of one request; raises the error that it is answered with."""
        completion: Completion | None = None
        async with aclosing(self._answers(request, wanted, streams=False)) as answers:
            async for answer in answers:
                completion = answer if isinstance(answer, Completion) else completion
        assert completion is not None, "a request was not answered"
        return completion

    async def pieces(self, request: Request, wanted: CompletionRequest, count: int = 1) -> AsyncGenerator[Piece]:
        """The texts of `count` choices, one after another, while they grow.

        Greedy choices after the first are alternatives; where the model has no more, the first again. The usages of
        all choices add up to the cost of the request.
        """
        if wanted.sampling is not None:
            for number in range(count):
                drawn = replace(wanted.sampling, seed=wanted.sampling.seed + number)
                async for piece in self._growing(request, replace(wanted, sampling=drawn), number):
                    yield piece
            return
        async for piece in self._growing(request, replace(wanted, alternatives=count - 1), 0):
            yield piece
            if piece.completion is not None:
                for number, other in enumerate(_others(piece.completion, count - 1), 1):
                    yield Piece(number, other.text, other)

    async def _growing(self, request: Request, wanted: CompletionRequest, choice: int) -> AsyncGenerator[Piece]:
        """The pieces of one request; the prompt counts with the first choice."""
        shown = ""
        async with aclosing(self._answers(request, wanted, streams=True)) as answers:
            async for answer in answers:
                text = answer if isinstance(answer, str) else answer.text
                more, shown = text[len(shown) :], max(shown, text, key=len)
                if isinstance(answer, Completion):
                    counted = {"prompt_tokens": 0, "recomputed_tokens": 0} if choice else {}
                    yield Piece(choice, more, replace(answer, usage=replace(answer.usage, **counted)))
                elif more:
                    yield Piece(choice, more)

    async def _answers(
        self, request: Request, wanted: CompletionRequest, *, streams: bool
    ) -> AsyncGenerator[str | Completion]:
        """The text so far, again and again if it `streams`, then the completion."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[str | Outcome] = asyncio.Queue()

        def tell(what: str | Outcome) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.put_nowait, what)

        client = f"http {request.client.host if request.client else ''}"
        with self._visit():
            on_text = tell if streams else None
            job_id = self.scheduler.submit(wanted, tell, client, supersedes=False, on_text=on_text)
            watch = asyncio.create_task(self._cancel_when_gone(request, job_id))
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
                self.scheduler.cancel(job_id)

    async def _cancel_when_gone(self, request: Request, job_id: int) -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        self.scheduler.cancel(job_id)


def session_of(request: Request, *names: str | int | None) -> str:
    """The engine's session for a request: its header, else the first of the `names` that is not empty, else none.

    Raises HTTPException if the header is longer than MAX_SESSION_CHARS.
    """
    header = request.headers.get(SESSION_HEADER, "")
    if len(header) > MAX_SESSION_CHARS:
        raise HTTPException(
            422, f"{SESSION_HEADER} has {len(header)} characters: at most {MAX_SESSION_CHARS} are allowed"
        )
    name = next((str(name) for name in (header, *names) if name not in ("", None)), "")
    return f"http/{name}" if name else ANONYMOUS


def slot_name(id_slot: int | None) -> str | None:
    """The session's name for llama.cpp's `id_slot`; -1 stands for any slot."""
    return None if id_slot is None or id_slot < 0 else f"slot {id_slot}"


def sampling(temperature: float | None, top_p: float | None, top_k: int | None, seed: int | None) -> Sampling | None:
    """How tokens are drawn; None for temperature 0, which is the default. Without a seed each request has its own."""
    if not temperature:
        return None
    seed = random.getrandbits(63) if seed is None or seed < 0 else seed
    return Sampling(temperature, 1.0 if top_p is None else top_p, max(0, top_k or 0), seed)


def _others(first: Completion, count: int) -> Iterator[Completion]:
    """The alternatives as completions of their own, whose cost counts with the first; it fills their number up."""
    free = Usage(0, 0, 0, 0, 0.0, 0.0, 0.0)
    for text in first.alternatives:
        yield replace(first, text=text, tokens=(), usage=free)
    for _ in range(len(first.alternatives), count):
        yield replace(first, usage=free)


@dataclass(slots=True)
class UsageSum:
    """The tokens of a response's choices."""

    prompt: int = 0
    recomputed: int = 0
    generated: int = 0

    def add(self, usage: Usage) -> None:
        """Add what one choice took."""
        self.prompt += usage.prompt_tokens
        self.recomputed += usage.recomputed_tokens
        self.generated += usage.generated_tokens

    def as_openai(self) -> dict[str, Any]:
        """As OpenAI and Mistral name them."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.generated,
            "total_tokens": self.prompt + self.generated,
            "prompt_tokens_details": {"cached_tokens": cached_tokens(self.prompt, self.recomputed)},
        }


def cached_tokens(prompt_tokens: int, recomputed_tokens: int) -> int:
    """Number of prompt tokens that were resident; healing can recompute more than the prompt has."""
    return max(0, prompt_tokens - recomputed_tokens)
