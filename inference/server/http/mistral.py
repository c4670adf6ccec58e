"""Mistral's API: `/v1/fim/completions`."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from inference.server.http.asking import NO_STOP, Asking, UsageSum, sampling, session_of
from inference.server.http.bodies import (
    BodyReader,
    Count,
    Fields,
    Name,
    OtherFields,
    Seed,
    Share,
    StopTexts,
    Temperature,
    max_tokens,
    stop_texts,
)
from inference.server.http.errors import error_event
from inference.server.http.openai import finish_reason
from inference.server.http.streaming import DONE, EVENTS, event, streamed
from protocol.messages import CompletionRequest

OTHERS = OtherFields(
    ignored=frozenset({"model", "metadata", "stream_options", "safe_prompt", "prompt_cache_key"}),
    neutral={"min_tokens": (0,), "frequency_penalty": (0,), "presence_penalty": (0,), "n": (1,)},
)


class FimBody(Fields, frozen=True):
    """The fields of `/v1/fim/completions`."""

    prompt: str
    suffix: str = ""
    stream: bool = False
    stop: str | StopTexts | None = None
    max_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    random_seed: Seed | None = None
    session: Name | None = None  # as `user` not Mistral's own
    user: Name | None = None


class Mistral:
    """The handlers. `prompt` is the text before the cursor."""

    def __init__(self, asking: Asking, bodies: BodyReader) -> None:
        self._asking = asking
        self._bodies = bodies

    @property
    def routes(self) -> list[Route]:
        """The paths of this API."""
        return [Route("/v1/fim/completions", self.completions, methods=["POST"])]

    async def completions(self, request: Request) -> Response:
        """One choice, whole or as server-sent events."""
        body = await self._bodies.read(request, FimBody, OTHERS)
        session = session_of(request, body.session, body.user)
        wanted = CompletionRequest(
            session,
            self._asking.around(session, body.prompt, body.suffix),
            max_tokens(body.max_tokens),
            NO_STOP,
            stop_texts=stop_texts(body.stop),
            sampling=sampling(body.temperature, body.top_p, None, body.random_seed),
        )
        head = {
            "id": uuid.uuid4().hex,
            "object": "chat.completion.chunk" if body.stream else "chat.completion",
            "created": int(time.time()),
            "model": self._asking.scheduler.status.model,
        }
        if body.stream:
            return await streamed(self._events(head, request, wanted), EVENTS, error_event)
        completion, usage = await self._asking.completion(request, wanted), UsageSum()
        usage.add(completion.usage)
        message = {"role": "assistant", "content": completion.text, "tool_calls": None}
        choice = {"index": 0, "message": message, "finish_reason": finish_reason(completion)}
        return JSONResponse({**head, "choices": [choice], "usage": usage.as_openai()})

    async def _events(self, head: dict[str, Any], request: Request, wanted: CompletionRequest) -> AsyncGenerator[bytes]:
        usage = UsageSum()
        async for piece in self._asking.pieces(request, wanted):
            reason = None if piece.completion is None else finish_reason(piece.completion)
            delta = {"role": "assistant", "content": piece.text}
            choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
            if piece.completion is None:
                yield event({**head, "choices": choices})
            else:
                usage.add(piece.completion.usage)
                yield event({**head, "choices": choices, "usage": usage.as_openai()})
        yield DONE
