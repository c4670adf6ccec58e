"""The dashboard of a core: its page, the links that open it, and its stream of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from inference.scheduling.scheduler import Scheduler
from inference.server.http.errors import error_response
from inference.server.http.streaming import EVENTS
from inference.server.pages.feed import Feed
from inference.server.pages.files import page_routes
from inference.server.pages.keys import PageKeys

LINK_PATH = "/dashboard/link"
EVENTS_PATH = "/dashboard/events"
KEY_PATH = "/pages/key"
Address = tuple[object, object]


class Dashboard:
    """The routes. A listener is no client: it keeps neither the model loaded nor the core running."""

    def __init__(self, scheduler: Scheduler, feed: Feed, keys: PageKeys, abort: Callable[[Address], None]) -> None:
        """`abort` ends the connection from and to these hosts and ports at once."""
        self._scheduler = scheduler
        self._feed = feed
        self._keys = keys
        self._abort = abort

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """The page, its files, and what its script requests."""
        return [
            *page_routes("dashboard"),
            key_route(self._keys),
            Route(LINK_PATH, self.link, methods=["POST"]),
            Route(EVENTS_PATH, self.events),
        ]

    async def link(self, _request: Request) -> Response:
        """The key of the page, and a code for one use, to whoever has the core's token."""
        return JSONResponse({"key": self._keys.key, "code": self._keys.new_code()})

    async def events(self, request: Request) -> Response:
        """The status now and at every change; what is resident, now and after every answer."""
        drop = partial(self._abort, (request.scope["client"], request.scope["server"]))

        async def pieces() -> AsyncGenerator[bytes]:
            async with aclosing(self._feed.listen(self._scheduler.status, drop)) as listening:
                yield await anext(listening)
                self._scheduler.look()
                async for one in listening:
                    yield one

        return StreamingResponse(pieces(), media_type=EVENTS, headers={"Cache-Control": "no-store"})


def key_route(keys: PageKeys) -> Route:
    """Exchanges what a link carries, sent as the bearer, for the key of the pages."""

    async def exchange(request: Request) -> Response:
        key = keys.exchange(bearer_of(request.headers.get("authorization", "")))
        if key is None:
            return error_response(401, "this link was used before, or is too old: open the page by a new one")
        return JSONResponse({"key": key}, headers={"Cache-Control": "no-store"})

    return Route(KEY_PATH, exchange)


def bearer_of(header: str) -> str:
    """The token of an Authorization header; empty if it has none."""
    scheme, _, token = header.partition(" ")
    return token if scheme == "Bearer" else ""
