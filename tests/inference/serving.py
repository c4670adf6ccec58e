"""Serves for a test: HTTP and WebSockets at one port of this machine, in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.testclient import TestClient

from inference.checkpoints.hub import ReportProgress
from inference.engine.engine import Engine
from inference.loading.engine import load_dry_engine, load_engine
from inference.loading.options import EngineOptions
from inference.scheduling.engine_holder import EngineHolder
from inference.scheduling.scheduler import Observer, Scheduler
from inference.scheduling.user_limits import UserLimits
from inference.server.admission.access import Access, HostNames
from inference.server.admission.connections import Connections
from inference.server.admission.tls import Certificate
from inference.server.admission.users import Users
from inference.server.app import make_app
from inference.server.clients import Presence
from inference.server.draining import Draining
from inference.server.http.text_anchors import TextAnchors
from inference.server.http_api import HttpApi
from inference.server.metrics import Metrics
from inference.server.pages.dashboard import Dashboard
from inference.server.pages.feed import Feed
from inference.server.process import bind, serve_app
from inference.server.retirement import Retirement
from inference.server.websocket_api import WebSocketApi

TOKEN = "secret"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@dataclass
class Served:
    """A core that serves at `address`, `host:port`; it also ends when `over` is set."""

    address: str
    scheduler: Scheduler
    presence: Presence
    connections: Connections
    retirement: Retirement
    anchors: TextAnchors
    draining: Draining
    feed: Feed
    over: threading.Event = field(default_factory=threading.Event)


@contextmanager
def serving(
    options: EngineOptions,
    connections: Connections | None = None,
    observe: Observer | None = None,
    *,
    users: Users | None = None,
    limits: UserLimits | None = None,
    certificate: Certificate | None = None,
) -> Iterator[Served]:
    """A core of this model; with a certificate, the address is that of its TLS."""
    presence, metrics, anchors, feed = Presence(), Metrics(), TextAnchors(), Feed()
    holder = EngineHolder("tiny", lambda progress: load_engine(options, progress), presence.announce)
    scheduler = Scheduler(holder, observe=observe or metrics.observe, limits=limits, watch=feed)
    connections = Connections(max_open=1000) if connections is None else connections
    retirement = Retirement(presence, lambda: scheduler.status, replaceable=True)
    draining = Draining(lambda: scheduler.is_idle, 30.0)
    websockets = WebSocketApi(scheduler, presence, connections, retirement, anchors, draining)
    access = Access(TOKEN, ["https://allowed.example"], HostNames(frozenset({"gpu-box"})), users)
    http, dashboard = (
        HttpApi(scheduler, presence, metrics, anchors),
        Dashboard(scheduler, feed, access.pages, connections.abort),
    )
    app = make_app(http, websockets.serve, access, connections, draining, dashboard)
    with bind("127.0.0.1", 0) as listener, bind("127.0.0.1", 0) as plain:
        host, port = listener.getsockname()
        served = Served(f"{host}:{port}", scheduler, presence, connections, retirement, anchors, draining, feed)

        def is_over() -> bool:
            if users is not None:
                users.refresh(websockets.close_revoked)
            if certificate is not None:
                certificate.refresh()
            return served.over.is_set()

        work = serve_app(app, connections, [listener, *([plain] if certificate else [])], is_over, certificate)
        thread = threading.Thread(target=asyncio.run, args=(work,))
        thread.start()
        try:
            yield served
        finally:
            served.over.set()
            thread.join()
            scheduler.close()


@contextmanager
def client_of(
    options: EngineOptions,
    observe: Observer | None = None,
    *,
    dry: bool = False,
    users: Users | None = None,
    limits: UserLimits | None = None,
) -> Iterator[TestClient]:
    """A client of a core in this process. A `dry` one computes nothing, and counts."""
    presence, metrics, anchors, feed = Presence(), Metrics(), TextAnchors(), Feed()

    def load(report: ReportProgress) -> Engine:
        return load_dry_engine(options) if dry else load_engine(options, report)

    scheduler = Scheduler(
        EngineHolder("tiny", load, presence.announce), observe=observe or metrics.observe, limits=limits, watch=feed
    )
    connections = Connections(max_open=1000)
    retirement = Retirement(presence, lambda: scheduler.status, replaceable=True)
    draining = Draining(lambda: scheduler.is_idle, 30.0)
    websockets = WebSocketApi(scheduler, presence, connections, retirement, anchors, draining)
    access = Access(TOKEN, ["https://allowed.example"], HostNames(frozenset({"gpu-box"})), users)
    http, dashboard = (
        HttpApi(scheduler, presence, metrics, anchors),
        Dashboard(scheduler, feed, access.pages, connections.abort),
    )
    app = make_app(http, websockets.serve, access, connections, draining, dashboard)
    with TestClient(app, base_url="http://127.0.0.1:8765", raise_server_exceptions=False) as client:
        yield client
    scheduler.close()
