"""Serves for a test: HTTP and WebSockets at one port of this machine, in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.testclient import TestClient
from websockets.sync.client import ClientConnection, connect

from inference.checkpoints.hub import ReportProgress
from inference.core.admission import Access, HostNames
from inference.core.app import HttpApi, make_app
from inference.core.connections import Connections, LoopShares
from inference.core.engine_holder import EngineHolder
from inference.core.http.text_anchors import TextAnchors
from inference.core.lifecycle import ConnectedClients, Shutdown
from inference.core.metrics import Metrics
from inference.core.process import bind, serve_app
from inference.core.scheduler import Observer, Scheduler
from inference.core.users import Users
from inference.core.websocket import WebSocketApi
from inference.engine.engine import Engine
from inference.loading.engine import load_dry_engine, load_engine
from inference.loading.options import EngineOptions
from protocol.wire import StatusChanged, decode_core

TOKEN = "secret"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PATIENCE_S = 100.0


@dataclass
class Served:
    """A core that serves at `address`, `host:port`; it also ends when `over` is set."""

    app: Starlette
    scheduler: Scheduler
    clients: ConnectedClients
    connections: Connections
    shutdown: Shutdown
    anchors: TextAnchors
    websockets: WebSocketApi
    address: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    def connect(self, token: str = TOKEN, **options: Any) -> ClientConnection:
        """A WebSocket of a client with this token."""
        headers = {"Authorization": f"Bearer {token}"}
        return connect(f"ws://{self.address}/ws", additional_headers=headers, **options)


def receive(websocket: ClientConnection) -> Any:
    """The next message that is not a change of status."""
    while isinstance(message := decode_core(str(websocket.recv(PATIENCE_S))), StatusChanged):
        pass
    return message


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _wired(
    load: Callable[[ReportProgress], Engine],
    observe: Observer | None,
    users: Users | None,
    connections: Connections | None = None,
) -> Served:
    """The parts of a core, which is not served yet."""
    clients, metrics, anchors = ConnectedClients(), Metrics(), TextAnchors()
    holder = EngineHolder("tiny", load, clients.announce)
    scheduler = Scheduler(holder, observe=observe or metrics.observe)
    connections = Connections(max_open=1000) if connections is None else connections
    shares = LoopShares()
    shutdown = Shutdown(clients, lambda: scheduler.status, replaceable=True)
    websockets = WebSocketApi(scheduler, clients, connections, shutdown, anchors, shares)
    access = Access(TOKEN, ["https://allowed.example"], HostNames(frozenset({"gpu-box"})), users)
    http = HttpApi(scheduler, clients, metrics, anchors)
    app = make_app(http, websockets.serve, access, connections, shares)
    return Served(app, scheduler, clients, connections, shutdown, anchors, websockets)


@contextmanager
def serving(
    options: EngineOptions,
    connections: Connections | None = None,
    observe: Observer | None = None,
    *,
    users: Users | None = None,
    certificate: tuple[Path, Path] | None = None,
) -> Iterator[Served]:
    """A core of this model; with a certificate, the address is that of its TLS."""
    served = _wired(lambda progress: load_engine(options, progress), observe, users, connections)
    with bind("127.0.0.1", 0) as listener, bind("127.0.0.1", 0) as plain:
        host, port = listener.getsockname()
        served.address = f"{host}:{port}"

        def is_over() -> bool:
            if users is not None:
                users.refresh(served.websockets.close_revoked)
            return served.over.is_set()

        listeners = [listener, *([plain] if certificate else [])]
        work = serve_app(served.app, served.connections, listeners, is_over, certificate)
        thread = threading.Thread(target=asyncio.run, args=(work,))
        thread.start()
        try:
            yield served
        finally:
            served.over.set()
            thread.join()
            served.scheduler.close()


@contextmanager
def client_of(
    options: EngineOptions, observe: Observer | None = None, *, dry: bool = False, users: Users | None = None
) -> Iterator[TestClient]:
    """A client of a core in this process. A `dry` one computes nothing, and counts."""

    def load(report: ReportProgress) -> Engine:
        return load_dry_engine(options) if dry else load_engine(options, report)

    served = _wired(load, observe, users)
    with TestClient(served.app, base_url="http://127.0.0.1:8765", raise_server_exceptions=False) as client:
        yield client
    served.scheduler.close()
