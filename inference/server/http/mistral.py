"""Mistral's API: `/v1/fim/completions`."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from inference.server.http.api import Api
from inference.server.http.asking import NO_STOP, Piece, session_of, whole
from inference.server.http.bodies import Count, DecodingFields, Name, OtherFields, Seed, max_tokens
from inference.server.http.errors import error_event
from inference.server.http.line_ends import line_end_of
from inference.server.http.openai import finish_reason, usage_of
from inference.server.http.streaming import DONE, EVENTS, event, streamed
from protocol.messages import CompletionRequest

OTHERS = OtherFields(
    ignored=frozenset({"model", "metadata", "stream_options", "safe_prompt", "prompt_cache_key"}),
    neutral={"min_tokens": (0,), "frequency_penalty": (0,), "presence_penalty": (0,), "n": (1,)},
)


class FimBody(DecodingFields, frozen=True, kw_only=True):
    """The fields of `/v1/fim/completions`."""

    prompt: str
    suffix: str = ""
    stream: bool = False
    max_tokens: Count | None = None
    seed: Seed | None = msgspec.field(default=None, name="random_seed")
    session: Name | None = None  # as `user` not Mistral's own
    user: Name | None = None


class Mistral(Api):
    """The handlers. `prompt` is the text before the cursor."""

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
            stop_texts=body.stop_texts(),
            sampling=body.sampling(),
        )
        head = {
            "id": uuid.uuid4().hex,
            "object": "chat.completion.chunk" if body.stream else "chat.completion",
            "created": int(time.time()),
            "model": self._model,
        }
        line_end = line_end_of(body.prompt, body.suffix)
        pieces = self._asking.pieces(request, wanted, grows=body.stream, line_end=line_end)
        if body.stream:
            return await streamed(self._events(head, pieces), EVENTS, error_event)
        (completion,) = await whole(pieces)
        message = {"role": "assistant", "content": completion.text, "tool_calls": None}
        choice = {"index": 0, "message": message, "finish_reason": finish_reason(completion)}
        return JSONResponse({**head, "choices": [choice], "usage": usage_of([completion])})

    async def _events(self, head: dict[str, Any], pieces: AsyncGenerator[Piece]) -> AsyncGenerator[bytes]:
        async for piece in pieces:
            reason = None if piece.completion is None else finish_reason(piece.completion)
            delta = {"role": "assistant", "content": piece.text}
            choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
            if piece.completion is None:
                yield event({**head, "choices": choices})
            else:
                yield event({**head, "choices": choices, "usage": usage_of([piece.completion])})
        yield DONE
