"""The HTTP side of the core: llama.cpp's `/infill` and OpenAI's `/v1/completions`, health and metrics."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from inference.scheduling.job_queue import Outcome
from inference.scheduling.scheduler import Scheduler
from inference.server.clients import Presence
from inference.server.http_bodies import CompletionsBody, InfillBody, read_body
from inference.server.metrics import Metrics
from protocol.messages import Completion, CompletionRequest, StopRule

NO_STOP = StopRule(indent=0)  # no line can dedent below 0


class HttpApi:
    """Handlers that share the WebSocket's scheduler. Decoding is greedy: sampling settings are ignored."""

    def __init__(self, scheduler: Scheduler, presence: Presence, metrics: Metrics) -> None:
        self._scheduler = scheduler
        self._presence = presence
        self._metrics = metrics

    async def health(self, request: Request) -> Response:
        """The core's status, with 503 if its model cannot be loaded; without the token, only that the core is alive."""
        if not request.scope["has_token"]:
            return JSONResponse({"status": "ok"})
        status = self._scheduler.status
        body = {"status": status.state, "model": status.model, "detail": status.detail}
        return JSONResponse(body, 503 if status.state == "failed" else 200)

    async def metrics(self, _request: Request) -> Response:
        """Prometheus' text format."""
        loaded = self._scheduler.status.state == "ready"
        text = self._metrics.render(self._presence.connections, loaded, self._scheduler.residency)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def infill(self, request: Request) -> Response:
        """Answers in llama.cpp's format."""
        body = await read_body(request, InfillBody)
        wanted = CompletionRequest(body.session_name, body.efim_prompt(), body.max_tokens, NO_STOP)
        completion = await self._complete(request, wanted)
        usage = completion.usage
        return JSONResponse(
            {
                "content": completion.text,
                "model": self._scheduler.status.model,
                "stop": True,
                "stop_type": "limit" if completion.finish_reason == "length" else "eos",
                "tokens_predicted": usage.generated_tokens,
                "tokens_evaluated": usage.prompt_tokens,
                "tokens_cached": usage.prompt_tokens - usage.recomputed_tokens,
                "timings": {
                    "prompt_n": usage.recomputed_tokens,
                    "prompt_ms": usage.prefill_ms,
                    "predicted_n": usage.generated_tokens,
                    "predicted_ms": usage.decode_ms,
                },
            }
        )

    async def completions(self, request: Request) -> Response:
        """Answers in OpenAI's format with one choice; without `suffix` the prompt is a prefix alone."""
        body = await read_body(request, CompletionsBody)
        wanted = CompletionRequest(body.session_name, body.efim_prompt(), body.limit, NO_STOP)
        completion = await self._complete(request, wanted)
        usage = completion.usage
        reason = "length" if completion.finish_reason == "length" else "stop"
        choice = {"index": 0, "text": completion.text, "finish_reason": reason, "logprobs": None}
        return JSONResponse(
            {
                "id": f"cmpl-{uuid.uuid4().hex}",
                "object": "text_completion",
                "created": int(time.time()),
                "model": self._scheduler.status.model,
                "choices": [choice],
                "usage": {
                    "prompt_tokens": usage.prompt_tokens,
                    "completion_tokens": usage.generated_tokens,
                    "total_tokens": usage.prompt_tokens + usage.generated_tokens,
                    "prompt_tokens_details": {"cached_tokens": usage.prompt_tokens - usage.recomputed_tokens},
                },
            }
        )

    async def _complete(self, request: Request, wanted: CompletionRequest) -> Completion:
        """Run one request, which supersedes no other, and cancel it if the client disconnects.

        All requests from one host count as one client, since HTTP requests carry no other identity.
        """
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Outcome] = loop.create_future()

        def on_done(answer: Outcome) -> None:
            loop.call_soon_threadsafe(_settle, answered, answer)

        with self._presence.visit():
            client = f"http {request.client.host if request.client else ''}"
            job_id = self._scheduler.submit(wanted, on_done, client, supersedes=False)
            gone = asyncio.create_task(_client_gone(request))
            waited_for: set[asyncio.Future[Any]] = {answered, gone}
            try:
                await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
            finally:
                gone.cancel()
                if not answered.done():
                    self._scheduler.cancel(job_id)
            answer = await answered
        if isinstance(answer, Completion):
            return answer
        raise answer


async def _client_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _settle(future: asyncio.Future[Outcome], answer: Outcome) -> None:
    if not future.done():
        future.set_result(answer)
