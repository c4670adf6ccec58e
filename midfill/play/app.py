"""The playground's ASGI application: its page, and a WebSocket for each page that is open."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from inference.server.admission.access import SUBPROTOCOL, Access, RefuseForeign, RequireToken
from inference.server.admission.connections import Connections
from inference.server.http.errors import HANDLERS
from inference.server.outbox import Outbox
from inference.server.pages.dashboard import key_route
from inference.server.pages.files import page_routes
from inference.server.pages.keys import PageKeys
from midfill.play.messages import Failed, ToPage, decode, encode
from midfill.play.session import PageSession
from protocol.errors import BadInput
from protocol.settings import Settings


def make_app(settings: Settings, port: int, keys: PageKeys, connections: Connections) -> Starlette:
    """The application at this port of loopback; only its own page, with the key, may open the WebSocket."""
    own = tuple(f"http://{name}:{port}" for name in ("127.0.0.1", "localhost"))
    access = Access(keys.key, own, pages=keys)

    async def serve(websocket: WebSocket) -> None:
        await websocket.accept(SUBPROTOCOL)
        outbox = Outbox(websocket, partial(connections.abort, websocket.scope["client"]))

        def send(message: ToPage) -> None:
            outbox.send(encode(message))

        session = PageSession(settings, send)
        sending = asyncio.create_task(outbox.run())
        try:
            await session.connect()
            while (message := await websocket.receive())["type"] != "websocket.disconnect":
                try:
                    session.receive(decode(message.get("text") or ""))
                except BadInput as error:
                    send(Failed(str(error)))
        finally:
            sending.cancel()
            await asyncio.shield(session.close())  # the server may cancel this handler when it ends

    return Starlette(
        routes=[*page_routes("playground"), key_route(keys), WebSocketRoute("/playground/session", serve)],
        middleware=[
            Middleware(RefuseForeign, access=access),
            Middleware(RequireToken, access=access, admit=connections.admit),
        ],
        exception_handlers=HANDLERS,
    )
