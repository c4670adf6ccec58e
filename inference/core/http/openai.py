"""OpenAI's API: `/v1/completions` and `/v1/models`."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Iterable
from typing import Annotated, Any

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from inference.core.http.bodies import MAX_CHOICES, Count, DecodingFields, Fields, Name, line_end_of, max_tokens
from inference.core.http.requests import NO_PROMPT, NO_STOP, Api, TextPiece, cached_tokens, session_of, whole
from inference.core.http.responses import DONE, EVENTS, error_event, event, streamed
from protocol.messages import Completion, CompletionRequest


class StreamOptions(Fields, frozen=True):
    """The chunks of a stream besides the texts."""

    include_usage: bool = False


class CompletionsBody(DecodingFields, frozen=True, kw_only=True):
    """The fields of `/v1/completions`."""

    prompt: str = ""
    suffix: str = ""
    stream: bool = False
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] = 1
    user: Name | None = None
    session: Name | None = None  # not OpenAI's own


class OpenAI(Api):
    """The handlers. A `prompt` without `suffix` is a rendered prompt, or the text before the cursor."""

    @property
    def routes(self) -> list[Route]:
        """The paths of this API."""
        return [Route("/v1/completions", self.completions, methods=["POST"]), Route("/v1/models", self.models)]

    async def models(self, _request: Request) -> Response:
        """The core's model."""
        created = int(self._started.timestamp())
        model = {"id": self._model, "object": "model", "created": created, "owned_by": "midfill"}
        return JSONResponse({"object": "list", "data": [model]})

    async def completions(self, request: Request) -> Response:
        """`n` choices, whole or as server-sent events."""
        body = await self._bodies.read(request, CompletionsBody)
        wanted = CompletionRequest(
            session_of(request, body.session, body.user),
            NO_PROMPT,
            max_tokens(body.max_tokens),
            NO_STOP,
            stop_texts=body.stop_texts(),
            sampling=body.sampling(),
        )
        wanted = self._asking.laid(request, wanted, body.prompt, body.suffix, repeatable=body.repeatable)
        line_end = "\n" if wanted.prompt.marked else line_end_of(body.prompt, body.suffix)
        pieces = self._asking.pieces(request, wanted, body.n, grows=body.stream, line_end=line_end)
        head = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time()), "model": self._model}
        if body.stream:
            with_usage = body.stream_options is not None and body.stream_options.include_usage
            return await streamed(_events(head, pieces, with_usage=with_usage), EVENTS, error_event)
        completions = await whole(pieces)
        choices = [_choice(TextPiece(index, ended.text, ended)) for index, ended in enumerate(completions)]
        return JSONResponse({**head, "choices": choices, "usage": usage_of(completions)})


async def _events(head: dict[str, Any], pieces: AsyncGenerator[TextPiece], *, with_usage: bool) -> AsyncGenerator[bytes]:
    ended = []
    async for piece in pieces:
        yield event({**head, "choices": [_choice(piece)], **({"usage": None} if with_usage else {})})
        if piece.completion is not None:
            ended.append(piece.completion)
    if with_usage:
        yield event({**head, "choices": [], "usage": usage_of(ended)})
    yield DONE


def _choice(piece: TextPiece) -> dict[str, Any]:
    reason = None if piece.completion is None else finish_reason(piece.completion)
    return {"index": piece.choice, "text": piece.text, "logprobs": None, "finish_reason": reason}


def finish_reason(completion: Completion) -> str:
    """Why the text ended, in OpenAI's words."""
    return "length" if completion.finish_reason == "length" else "stop"


def usage_of(completions: Iterable[Completion]) -> dict[str, Any]:
    """The tokens of a response's choices, as OpenAI names them."""
    usages = [completion.usage for completion in completions]
    prompt = sum(usage.prompt_tokens for usage in usages)
    generated = sum(usage.generated_tokens for usage in usages)
    cached = cached_tokens(prompt, sum(usage.recomputed_tokens for usage in usages))
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
