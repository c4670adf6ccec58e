"""The HTTP side of the core: the APIs that clients know, health and metrics."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from inference.scheduling.scheduler import Scheduler
from inference.server.clients import Presence
from inference.server.http.asking import Asking
from inference.server.http.bodies import BodyReader, read_object
from inference.server.http.llama_cpp import LlamaCpp
from inference.server.http.mistral import Mistral
from inference.server.http.ollama import Ollama
from inference.server.http.openai import OpenAI
from inference.server.http.tabby import Tabby
from inference.server.http.text_anchors import TextAnchors
from inference.server.metrics import Metrics


class HttpApi:
    """Handlers that share the WebSocket's scheduler."""

    def __init__(self, scheduler: Scheduler, presence: Presence, metrics: Metrics, anchors: TextAnchors) -> None:
        self._scheduler = scheduler
        self._presence = presence
        self._metrics = metrics
        asking, bodies = Asking(scheduler, presence.visit, anchors), BodyReader()
        self._openai, self._tabby = OpenAI(asking, bodies), Tabby(asking, bodies)
        self._apis = [self._openai, self._tabby, *(api(asking, bodies) for api in (Mistral, LlamaCpp, Ollama))]

    @property
    def routes(self) -> list[Route]:
        """The paths of all APIs."""
        routes = [
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/v1/completions", self.completions, methods=["POST"]),
        ]
        return [*routes, *(route for api in self._apis for route in api.routes)]

    async def completions(self, request: Request) -> Response:
        """The answer of OpenAI's API, or of Tabby's, which has the same path and a body with `segments`."""
        values = await read_object(request)
        api = self._tabby if "segments" in values else self._openai
        return await api.completions(request, values)

    async def health(self, request: Request) -> Response:
        """The core's status, with 503 if its model cannot be loaded; without the token, only that the core is alive."""
        if request.scope["user"] is None:
            return JSONResponse({"status": "ok"})
        status = self._scheduler.status
        body = {"status": status.state, "model": status.model, "detail": status.detail}
        return JSONResponse(body, 503 if status.state == "failed" else 200)

    async def metrics(self, _request: Request) -> Response:
        loaded = self._scheduler.status.state == "ready"
        text = self._metrics.render(self._presence.connections, loaded, self._scheduler.residency)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")
