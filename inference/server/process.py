"""Runs the core as a process: one per model and user, published in the runtime folder, ended when idle."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import uvicorn
from starlette.applications import Starlette

from inference.loading.options import EngineOptions
from inference.loading.speed_record import SpeedRecord
from inference.remote.choosing import needs_download, open_engine
from inference.scheduling.engine_holder import EngineHolder
from inference.scheduling.scheduler import Scheduler
from inference.server.access import Access, HostNames
from inference.server.app import make_app
from inference.server.clients import Presence
from inference.server.connections import AcceptErrors, BoundedHttp, BoundedWebSocket, Connections
from inference.server.http.bodies import MAX_BODY_BYTES
from inference.server.http_api import HttpApi
from inference.server.metrics import Metrics
from inference.server.process_limits import configure_log, raise_file_limit
from inference.server.retirement import Retirement
from inference.server.websocket_api import WebSocketApi
from kv_store.disk.model_folders import purge_saved
from protocol.errors import AlreadyServed, BadInput, PortInUse
from protocol.identity import SettingValue
from protocol.messages import PROTOCOL_VERSION
from protocol.rendezvous import (
    CoreAddress,
    address_file,
    core_name,
    hold,
    read_address,
    read_or_make_token,
    runtime_folder,
    write_address,
)
from protocol.settings import LOCAL_ENGINE

SHUTDOWN_GRACE_S = 3
BACKLOG = 128  # pending connections; asyncio accepts up to this many in one turn of its loop
PING_EVERY_S = 20.0  # a client that has not answered after the same time again is dropped
WATCH_EVERY_S = 1.0
FAILED_EXIT_AFTER_S = 10.0
"""A core whose model cannot be loaded exits after this long without a client, unless `exit_after_s` is None."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How to serve a model; times are in seconds, and None means never."""

    engine: EngineOptions = field(default_factory=EngineOptions)
    host: str = "127.0.0.1"
    port: int = 0  # 0 takes a free one
    allowed_origins: tuple[str, ...] = ()  # of web pages that may connect
    allowed_hosts: tuple[str, ...] = ()  # names of this machine, besides its own and loopback's
    log_file: Path | None = None  # None logs to stderr
    unload_after_s: float | None = 600.0  # without a request
    exit_after_s: float | None = 3600.0  # without a client
    settings: Mapping[str, SettingValue] = field(default_factory=dict)  # published with the core's address
    replaceable: bool = False  # whether clients with other settings may end it, once no other client uses it
    speed_folder: Path | None = None  # keeps the model's speed on this machine; None does not measure it
    runtime_dir: Path | None = None  # None means `protocol.rendezvous.runtime_folder()`


def serve(options: ServeOptions) -> bool:
    """Serve until a signal, until clients end the core, or until no client has been connected for `exit_after_s`.

    Returns False if the model thread has not ended in time: the process must then end by `os._exit`.

    Raises AlreadyServed if a core of this user serves the model, PortInUse if the address is taken, DeviceLost if this
    process can no longer use its GPU, and the errors of `needs_download`. Publishes the address and the token in the
    runtime folder.
    """
    configure_log(options.log_file)
    if needs_download(options.engine):
        log.info("%s is not on this machine yet: the first request downloads it", options.engine.model)
    folder = options.runtime_dir or runtime_folder()
    name = core_name(options.engine.model, options.engine.engine)
    published = address_file(folder, name)
    with ExitStack() as stack:
        if not stack.enter_context(hold(published)):
            raise AlreadyServed(
                f"a core serves {name} already: {_who(read_address(published))}. Use it, or stop "
                "it first: midfill core stop"
            )
        published.unlink(missing_ok=True)  # left by a killed core
        listener = stack.enter_context(bind(options.host, options.port))
        token = read_or_make_token(folder)
        address = _address(options, listener)
        signalled = stack.enter_context(_signals_that_end_gently())
        stack.callback(published.unlink, missing_ok=True)
        write_address(published, address)
        log.info("serving %s at %s, to clients with the token in %s", address.model, address.url, folder / "token")
        has_ended = _run(options, listener, token, signalled)
        log.info("stopped serving %s", address.model)
    return has_ended


def _address(options: ServeOptions, listener: socket.socket) -> CoreAddress:
    return CoreAddress(
        url=_url(listener, options.host),
        pid=os.getpid(),
        model=core_name(options.engine.model, options.engine.engine),
        settings=dict(options.settings),
        protocol_version=PROTOCOL_VERSION,
        replaceable=options.replaceable,
    )


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises PortInUse, with the address, if it is taken, BadInput if it does not exist."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise BadInput(f"cannot listen at {host}: {error}") from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    if os.name == "posix":  # elsewhere this would let two cores share the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise PortInUse(f"cannot listen at {host}:{port}: {error.strerror}. Choose another port, or 0") from error
    return listener


def _run(options: ServeOptions, listener: socket.socket, token: str, signalled: threading.Event) -> bool:
    presence, metrics = Presence(), Metrics()
    name, cache = core_name(options.engine.model, options.engine.engine), options.engine.cache_folder
    forget_saved = None if cache is None else partial(purge_saved, cache)
    is_local = options.engine.engine == LOCAL_ENGINE
    speeds = SpeedRecord(options.speed_folder, options.engine) if options.speed_folder and is_local else None
    load = partial(open_engine, options.engine)
    holder = EngineHolder(name, load, presence.announce, forget_saved, speeds)
    scheduler = Scheduler(holder, options.unload_after_s, metrics.observe)
    connections = Connections(raise_file_limit())
    access = Access(token, options.allowed_origins, _host_names(options, listener))
    retirement = Retirement(presence, lambda: scheduler.status, replaceable=options.replaceable)
    serve_websocket = WebSocketApi(scheduler, presence, connections, retirement).serve
    app = make_app(HttpApi(scheduler, presence, metrics), serve_websocket, access, connections)

    def is_over() -> bool:
        exit_after_s = options.exit_after_s
        if exit_after_s is not None and scheduler.status.state == "failed":
            exit_after_s = min(exit_after_s, FAILED_EXIT_AFTER_S)
        should_exit = signalled.is_set() or scheduler.lost is not None or retirement.due
        return should_exit or _idle_for(presence, exit_after_s)

    try:
        asyncio.run(serve_app(app, connections, listener, is_over))
    finally:
        has_ended = scheduler.close(SHUTDOWN_GRACE_S)
    if scheduler.lost is not None:
        raise scheduler.lost
    return has_ended


async def serve_app(
    app: Starlette, connections: Connections, listener: socket.socket, is_over: Callable[[], bool]
) -> None:
    """Serve HTTP and WebSockets at one port until `is_over`, which is polled once a second."""
    asyncio.get_running_loop().set_exception_handler(AcceptErrors())
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=cast("type[asyncio.Protocol]", partial(BoundedHttp, connections)),  # uvicorn only calls it
            ws=cast("type[asyncio.Protocol]", partial(BoundedWebSocket, connections)),
            ws_max_size=MAX_BODY_BYTES,
            ws_ping_interval=PING_EVERY_S,
            ws_ping_timeout=PING_EVERY_S,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # a client's address is its connection's
            server_header=False,
            backlog=BACKLOG,
            timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    while not serving.done():
        await asyncio.wait({serving}, timeout=WATCH_EVERY_S)
        server.should_exit = server.should_exit or is_over()
    await serving


def _host_names(options: ServeOptions, listener: socket.socket) -> HostNames:
    """The host names under which requests may address the core."""
    bound = ipaddress.ip_address(listener.getsockname()[0])
    own = () if bound.is_loopback else (str(bound), socket.gethostname(), socket.getfqdn())
    names = frozenset(name.lower() for name in (options.host, *own, *options.allowed_hosts))
    return HostNames(names, any_address=bound.is_unspecified)


def _idle_for(presence: Presence, seconds: float | None) -> bool:
    if seconds is None or presence.alone_for_s() < seconds:
        return False
    log.info("no client has been connected for %g s", seconds)
    return True


@contextmanager
def _signals_that_end_gently() -> Iterator[threading.Event]:
    """Make SIGINT and SIGTERM end the server, not the process; they set the event.

    uvicorn stops at signals that arrive while it runs, and raises them again when it has stopped: their default
    handlers would then kill the process before its cleanup.
    """
    signalled = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield signalled
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: signalled.set()) for number in signals}
    try:
        yield signalled
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _url(listener: socket.socket, host: str) -> str:
    """The listener's URL for clients on this machine; loopback if it listens on every address."""
    address, port = listener.getsockname()[:2]
    parsed = ipaddress.ip_address(address)
    if not parsed.is_loopback:
        log.warning(
            "%s accepts connections from other machines: only the token protects it, and connections are not encrypted",
            host,
        )
    if parsed.is_unspecified:
        parsed = ipaddress.ip_address("127.0.0.1" if parsed.version == 4 else "::1")
    return f"ws://{f'[{parsed}]' if parsed.version == 6 else parsed}:{port}/ws"


def _who(address: CoreAddress | None) -> str:
    return "a core that is still starting" if address is None else f"process {address.pid} at {address.url}"
