"""Ollama's API: `/`, `/api/generate`, `/api/tags`, `/api/show` and `/api/version`."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from inference.core.http.bodies import DecodingFields, Fields, Name, line_end_of, max_tokens
from inference.core.http.requests import NO_PROMPT, NO_STOP, Api, TextPiece, cached_tokens, session_of, user_of, whole
from inference.core.http.responses import LINES, line, streamed
from protocol.installation import own_version
from protocol.messages import Completion, CompletionRequest

TEMPLATE = "{{ .Prompt }}{{ .Suffix }}"
"""Clients look for `.Suffix`, which says that the model fills in the middle."""


class Options(DecodingFields, frozen=True, kw_only=True):
    """The supported options."""

    num_predict: Annotated[int, Meta(ge=-2)] | None = None  # -1: no limit; -2: as many as the context has room for


class GenerateBody(Fields, frozen=True, kw_only=True):
    """The fields of `/api/generate`. Without `suffix`, `prompt` may be a rendered prompt."""

    prompt: str = ""
    suffix: str = ""
    stream: bool = True
    options: dict[str, Any] | None = None
    keep_alive: str | float | None = None
    session: Name | None = None  # as `user` not Ollama's own
    user: Name | None = None


class Ollama(Api):
    """The handlers."""

    @property
    def routes(self) -> list[Route]:
        """The paths of this API."""
        return [
            Route("/", self.running),
            Route("/api/generate", self.generate, methods=["POST"]),
            Route("/api/tags", self.tags),
            Route("/api/show", self.show, methods=["POST"]),
            Route("/api/version", self.version),
        ]

    async def running(self, _request: Request) -> Response:
        """The sign of life that clients look for; answered without the token too."""
        return PlainTextResponse("Ollama is running")

    async def generate(self, request: Request) -> Response:
        """One text, as lines of JSON unless `stream` is false. Without a prompt it loads or unloads the model."""
        body = await self._bodies.read(request, GenerateBody)
        options = self._options(request, body)
        session = session_of(request, body.session, body.user)
        is_empty = not (body.prompt or body.suffix)
        if is_empty and _is_zero(body.keep_alive):
            if user_of(request):
                raise HTTPException(403, "keep_alive is 0: only the core's own token may unload its model")
            self._asking.scheduler.unload()
            return JSONResponse({**self._head(), "response": "", "done": True, "done_reason": "unload"})
        wanted = CompletionRequest(
            session,
            NO_PROMPT,
            0 if is_empty else max_tokens(options.num_predict),
            NO_STOP,
            stop_texts=options.stop_texts(),
            sampling=options.sampling(),
        )
        wanted = self._asking.laid(request, wanted, body.prompt, body.suffix, repeatable=options.repeatable)
        grows = body.stream and not is_empty
        line_end = "\n" if wanted.prompt.marked else line_end_of(body.prompt, body.suffix)
        pieces = self._asking.pieces(request, wanted, grows=grows, line_end=line_end)
        if grows:
            return await streamed(self._lines(pieces), LINES, lambda error: line({"error": str(error)}))
        (completion,) = await whole(pieces)
        ended = self._ended(completion.text, completion)
        return JSONResponse({**ended, "done_reason": "load"} if is_empty else ended)

    async def tags(self, _request: Request) -> Response:
        """The core's model as a list."""
        digest = hashlib.sha256(self._model.encode()).hexdigest()
        model = {"name": self._model, "model": self._model, "modified_at": _iso(self._started), "size": 0}
        return JSONResponse({"models": [{**model, "digest": digest, "details": _details()}]})

    async def show(self, _request: Request) -> Response:
        """The facts that clients need of the model: that it fills in the middle, and its context."""
        status = self._asking.scheduler.status
        return JSONResponse(
            {
                "modelfile": "",
                "parameters": f"num_ctx {status.context_tokens}" if status.context_tokens else "",
                "template": TEMPLATE,
                "details": _details(),
                "model_info": {"general.name": status.model, "midfill.context_length": status.context_tokens},
                "capabilities": ["completion", "insert"],
                "modified_at": _iso(self._started),
            }
        )

    async def version(self, _request: Request) -> Response:
        """midfill's version."""
        return JSONResponse({"version": own_version()})

    def _options(self, request: Request, body: GenerateBody) -> Options:
        values = {name: value for name, value in (body.options or {}).items() if value is not None}
        return self._bodies.converted(request, values, Options, "$.options")

    async def _lines(self, pieces: AsyncGenerator[TextPiece]) -> AsyncGenerator[bytes]:
        async for piece in pieces:
            if piece.completion is None:
                yield line({**self._head(), "response": piece.text, "done": False})
            else:
                yield line(self._ended(piece.text, piece.completion))

    def _head(self) -> dict[str, Any]:
        return {"model": self._model, "created_at": _iso(datetime.now(UTC))}

    def _ended(self, text: str, completion: Completion) -> dict[str, Any]:
        """The last answer; durations are in nanoseconds. Ollama has no field for `prompt_eval_cached_count`."""
        usage = completion.usage
        total_ms = usage.queue_ms + usage.prepare_ms + usage.prefill_ms + usage.decode_ms
        return {
            **self._head(),
            "response": text,
            "done": True,
            "done_reason": "length" if completion.finish_reason == "length" else "stop",
            "total_duration": int(total_ms * 1e6),
            "load_duration": 0,
            "prompt_eval_count": usage.prompt_tokens,
            "prompt_eval_cached_count": cached_tokens(usage.prompt_tokens, usage.recomputed_tokens),
            "prompt_eval_duration": int(usage.prefill_ms * 1e6),
            "eval_count": usage.generated_tokens,
            "eval_duration": int(usage.decode_ms * 1e6),
        }


def _details() -> dict[str, Any]:
    empty = dict.fromkeys(("parent_model", "format", "family", "parameter_size", "quantization_level"), "")
    return {**empty, "families": []}


def _is_zero(keep_alive: str | float | None) -> bool:
    return keep_alive in (0, "0", "0s", "0m", "0h")


def _iso(time: datetime) -> str:
    return time.isoformat().replace("+00:00", "Z")
