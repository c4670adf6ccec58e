"""Serves for a test: HTTP and WebSockets at one port of this machine, in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from starlette.applications import Starlette

from inference.access import Access
from inference.server import bind, serve_app
from inference.websocket_transport import Handler, WebSocketTransport

TOKEN = "secret"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
ACCESS = Access(TOKEN, ["https://allowed.example"])


@contextmanager
def serving(
    connect: Callable[[WebSocketTransport], Handler], app: Starlette | None = None, ended: threading.Event | None = None
) -> Iterator[str]:
    """`host:port`, while it lasts; it also ends when `ended` is set."""
    over = ended or threading.Event()
    with bind("127.0.0.1", 0) as listener:
        host, port = listener.getsockname()
        new_websocket = partial(WebSocketTransport, ACCESS, connect)
        work = serve_app(app or Starlette(), new_websocket, listener, over.is_set)
        thread = threading.Thread(target=asyncio.run, args=(work,))
        thread.start()
        try:
            yield f"{host}:{port}"
        finally:
            over.set()
            thread.join()
