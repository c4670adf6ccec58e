"""The command `midfill play`: the playground, in the user's browser.

It is an editor like others: its page speaks LSP, over a WebSocket, to a language server of its own.
"""

from __future__ import annotations

import asyncio
import threading
import webbrowser
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from protocol.settings import Settings

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.websockets import WebSocket

    from inference.core.connections import Connections
    from inference.core.websocket import Outbox
    from midfill.pages import PageKeys

_MOST_CONNECTIONS = 256


def play_command(
    settings: Settings,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser, or only print the address.")] = True,
) -> None:
    """Try midfill in the browser: an editor with suggestions from this machine's core, and what each key costs.

    It serves the page on this machine alone until you end it with Ctrl+C. The core keeps running, as for an editor.
    """
    from inference.core.connections import Connections
    from inference.core.process import bind, serve_app
    from midfill.pages import PageKeys

    keys, connections = PageKeys(), Connections(_MOST_CONNECTIONS)
    with bind("127.0.0.1", port) as listener:
        port = listener.getsockname()[1]
        page = f"http://127.0.0.1:{port}/playground"
        typer.echo(f"{page}#{keys.key}")
        if browser:  # some return only when they are closed
            threading.Thread(target=webbrowser.open, args=(f"{page}#{keys.new_code()}",), daemon=True).start()
        typer.echo("End it with Ctrl+C.", err=True)
        app = make_app(settings, port, keys, connections)
        with suppress(KeyboardInterrupt):
            asyncio.run(serve_app(app, connections, [listener], lambda: False))


def make_app(settings: Settings, port: int, keys: PageKeys, connections: Connections) -> Starlette:
    """The application at this port of loopback; only its own page, with the key, may open the WebSocket."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.routing import WebSocketRoute

    from inference.core.admission import SUBPROTOCOL, Access, RefuseForeign, RequireToken
    from inference.core.connections import LoopShares
    from inference.core.http.responses import HANDLERS
    from inference.core.websocket import Outbox
    from lsp_server.launch import make_server, serve
    from midfill.pages import key_route, page_routes

    own = tuple(f"http://{name}:{port}" for name in ("127.0.0.1", "localhost"))
    access = Access(keys.key, own)
    # Who opens the page is about to type there; what is tried out there is no part of the user's statistics.
    settings = replace(settings, prepare_ahead="always", statistics=False)

    async def converse(websocket: WebSocket) -> None:
        await websocket.accept(SUBPROTOCOL)
        address = websocket.scope["client"], websocket.scope["server"]
        outbox = Outbox(websocket, partial(connections.abort, address))
        sending = asyncio.create_task(outbox.run())
        server = make_server(settings)
        server.protocol.set_writer(_PageWriter(outbox), include_headers=False)
        try:
            with suppress(SystemExit):  # at LSP's `exit`
                await serve(server, partial(_receive, websocket))
        finally:
            sending.cancel()

    with_key = [Middleware(RequireToken, access=access, admit=connections.admit, shares=LoopShares())]
    return Starlette(
        routes=[*page_routes("playground"), key_route(keys), WebSocketRoute("/playground/lsp", converse, middleware=with_key)],
        middleware=[Middleware(RefuseForeign, access=access)],
        exception_handlers=HANDLERS,
    )


class _PageWriter:
    """Sends each message of a language server to its page."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def write(self, data: bytes) -> None:
        self._outbox.send(data.decode())

    def close(self) -> None:
        """Do nothing: the page closes the connection."""


async def _receive(websocket: WebSocket) -> bytes | None:
    """The next message of a page; None at the end of the connection."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        return None
    return str(message.get("text") or "").encode("utf-8", "surrogatepass")
