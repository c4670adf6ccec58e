"""The core's process: one per model and user, published in the runtime folder, with its log and limits, ended when
idle.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, cast

import uvicorn
from starlette.applications import Starlette

from inference.core.admission import Access, HostNames
from inference.core.app import HttpApi, make_app
from inference.core.connections import BoundedHttp, BoundedWebSocket, Connections, LoopShares, raise_file_limit
from inference.core.engine_holder import EngineHolder
from inference.core.http.bodies import MAX_BODY_BYTES
from inference.core.http.text_anchors import TextAnchors
from inference.core.lifecycle import ConnectedClients, Shutdown
from inference.core.metrics import Metrics
from inference.core.scheduler import Scheduler
from inference.core.users import Users
from inference.core.websocket import WebSocketApi
from inference.loading.engine import import_what_loading_needs
from inference.loading.options import EngineOptions, engine_options
from inference.remote.connecting import EngineOpener
from kv_store.disk_folders import remove_other_models
from kv_store.persistence import purge_saved
from kv_store.purges import PurgeJournal
from protocol.errors import AlreadyServed, BadInput, PortInUse
from protocol.messages import PROTOCOL_VERSION, CoreStatus
from protocol.rendezvous import (
    CoreAddress,
    SettingValue,
    address_file,
    cache_folder,
    core_name,
    core_settings,
    hold,
    read_address,
    read_or_make_token,
    resolve_engine,
    resolve_model,
    runtime_folder,
    write_address,
)
from protocol.settings import LOCAL_ENGINE, Settings

MAX_LOG_BYTES = 2 * 2**20
"""A log file of this size is renamed to FILE.1, and a new one begins."""

log = logging.getLogger(__name__)


def configure_log(file: Path | None) -> None:
    """Log to stderr, or to `file`, which is rotated at MAX_LOG_BYTES with one predecessor."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    if file is not None:
        handler = RotatingFileHandler(file, maxBytes=MAX_LOG_BYTES, backupCount=1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # lower levels report every request
    uvicorn_log = logging.getLogger("uvicorn.error")
    uvicorn_log.setLevel(logging.WARNING)  # lower levels report every connection, with its path
    uvicorn_log.addFilter(_is_not_a_refusal)


def _is_not_a_refusal(record: logging.LogRecord) -> bool:
    """False for the error that uvicorn logs after a refused WebSocket, although it has sent the refusal."""
    return record.msg != "ASGI callable returned without completing handshake."


SHUTDOWN_GRACE_S = 3
"""Seconds that requests at work have to finish when the core ends."""
PING_EVERY_S = 20.0  # a client that has not answered after the same time again is dropped
WATCH_EVERY_S = 0.2
FAILED_EXIT_AFTER_S = 10.0
"""A core whose model cannot be loaded exits after this long without a client, unless `exit_after_s` is None."""


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How to serve a model; times are in seconds, and None means never."""

    engine: EngineOptions = field(default_factory=EngineOptions)
    host: str = "127.0.0.1"
    port: int = 0  # 0 takes a free one
    allowed_origins: tuple[str, ...] = ()  # of web pages that may connect
    allowed_hosts: tuple[str, ...] = ()  # names of this machine, besides its own and loopback's
    certificate: tuple[Path, Path] | None = None  # the chain and its key; None serves without TLS
    users: Path | None = None  # the file of `server.users`; None has the machine's own token alone
    log_file: Path | None = None  # None logs to stderr
    unload_after_s: float | None = Settings().unload_after_s  # without a request
    exit_after_s: float | None = Settings().exit_after_s  # without a client
    settings: Mapping[str, SettingValue] = field(default_factory=dict)  # published with the core's address
    replaceable: bool = False  # whether clients with other settings may end it, once no other client uses it
    runtime_dir: Path | None = None  # None means `protocol.rendezvous.runtime_folder()`


def serve(options: ServeOptions, on_published: Callable[[], None] = lambda: None) -> bool:
    """Serve until a signal, until clients end the core, or until no client has been connected for `exit_after_s`.

    Calls `on_published` when clients find this core. Returns False if the model thread has not ended in time: the
    process must then end by `os._exit`.

    Raises AlreadyServed if a core of this user serves the model, PortInUse if the address is taken, DeviceLost if this
    process can no longer use its GPU, and the errors of `EngineOpener`. Publishes the address and the token in the
    runtime folder.
    """
    configure_log(options.log_file)
    if options.certificate is not None:
        check_certificate(*options.certificate)
    users = Users(options.users) if options.users is not None else None
    opener = EngineOpener(options.engine)
    if opener.needs_download:
        log.info("%s is not on this machine yet: the first request downloads it", options.engine.model)
    folder = options.runtime_dir or runtime_folder()
    name = core_name(options.engine.model, options.engine.engine)
    published = address_file(folder, name)
    with ExitStack() as stack:
        if not stack.enter_context(hold(published)):
            found = read_address(published)
            who = f"process {found.pid} at {found.url}" if found else "a core that is still starting"
            raise AlreadyServed(f"a core serves {name} already: {who}. Use it, or stop it first: midfill core stop")
        published.unlink(missing_ok=True)  # left by a killed core
        listeners = [stack.enter_context(bind(options.host, options.port))]
        if options.certificate is not None:  # this machine's clients find the core without a certificate of its name
            listeners.append(stack.enter_context(bind("127.0.0.1", 0)))
        token = read_or_make_token(folder)
        _warn_of_network(options, listeners[0])
        address = _address(options, listeners)
        signals = stack.enter_context(_signals_that_end_gently())
        stack.callback(published.unlink, missing_ok=True)
        write_address(published, address)
        on_published()
        log.info("serving %s at %s, to clients with the token in %s", address.model, address.url, folder / "token")
        access = Access(token, options.allowed_origins, _host_names(options, listeners[0]), users)
        has_ended = _run(options, opener, listeners, access, users, signals)
        log.info("stopped serving %s", address.model)
    return has_ended


def _address(options: ServeOptions, listeners: Sequence[socket.socket]) -> CoreAddress:
    """The address for clients on this machine; the last listener has no TLS."""
    return CoreAddress(
        url=_url(listeners[-1]),
        pid=os.getpid(),
        model=core_name(options.engine.model, options.engine.engine),
        settings=dict(options.settings),
        protocol_version=PROTOCOL_VERSION,
        replaceable=options.replaceable,
    )


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises PortInUse, with the address, if it is taken, BadInput if it cannot be used here."""
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
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"cannot listen at {host}:{port}: {error.strerror}. Choose another port, or 0") from error
        remedy = "port, or 0" if error.errno == errno.EACCES else "host: this machine does not have the address"
        raise BadInput(f"cannot listen at {host}:{port}: {error.strerror}. Choose another {remedy}") from error
    return listener


def _run(
    options: ServeOptions,
    opener: EngineOpener,
    listeners: Sequence[socket.socket],
    access: Access,
    users: Users | None,
    signals: Sequence[int],
) -> bool:
    clients, metrics, anchors = ConnectedClients(), Metrics(), TextAnchors()
    cache = options.engine.cache_folder
    journal = None if cache is None else PurgeJournal(cache)

    holder = _engine_holder(options.engine, opener, clients.announce, journal)
    scheduler = Scheduler(holder, options.unload_after_s, metrics.observe)
    connections, shares = Connections(raise_file_limit()), LoopShares()
    shutdown = Shutdown(clients, lambda: scheduler.status, replaceable=options.replaceable)
    websockets = WebSocketApi(scheduler, clients, connections, shutdown, anchors, shares)
    http = HttpApi(scheduler, clients, metrics, anchors)
    app = make_app(http, websockets.serve, access, connections, shares)

    def is_over() -> bool:
        if users is not None:
            users.refresh(websockets.close_revoked)
        if journal is not None and (digests := journal.news()):
            scheduler.forget_purged(digests)
            anchors.forget("")
        exit_after_s = options.exit_after_s
        if exit_after_s is not None and scheduler.status.state == "failed":
            exit_after_s = min(exit_after_s, FAILED_EXIT_AFTER_S)
        return bool(signals) or scheduler.lost is not None or shutdown.due or _idle_for(clients, exit_after_s)

    try:
        asyncio.run(serve_app(app, connections, listeners, is_over, options.certificate))
    finally:
        has_ended = scheduler.close(SHUTDOWN_GRACE_S)
    if scheduler.lost is not None:
        raise scheduler.lost
    return has_ended


def _engine_holder(
    options: EngineOptions, opener: EngineOpener, announce: Callable[[CoreStatus], None], journal: PurgeJournal | None
) -> EngineHolder:
    name, cache = core_name(options.model, options.engine), options.cache_folder
    return EngineHolder(
        name,
        opener.open,
        announce,
        None if cache is None or journal is None else partial(_forget_saved, journal, cache),
        None if cache is None else partial(remove_other_models, cache),
        import_what_loading_needs if options.engine == LOCAL_ENGINE else lambda: None,
    )


def _forget_saved(journal: PurgeJournal, cache: Path, document: str) -> None:
    """Tell the user's other cores to forget a document, then remove what is saved of it."""
    try:
        journal.add(document)
    except OSError as error:
        log.warning("the user's other cores cannot be asked to forget a document: %s", error)
    purge_saved(cache, document)


def check_certificate(chain: Path, key: Path) -> None:
    """Raise BadInput if the files are no certificate with its key; an encrypted key is not supported."""
    try:  # without a password, OpenSSL would ask for one at the terminal
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key, password="")
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise BadInput(f"{chain} and {key} cannot be used as a certificate and its key: {error}") from error


async def serve_app(
    app: Starlette,
    connections: Connections,
    listeners: Sequence[socket.socket],
    is_over: Callable[[], bool],
    certificate: tuple[Path, Path] | None = None,
) -> None:
    """Serve HTTP and WebSockets until `is_over`, which is polled; with a certificate the last listener has no TLS."""
    servers = []
    for listener in listeners:
        has_tls = certificate is not None and listener is not listeners[-1]
        servers.append(_server(app, connections, *(certificate if certificate and has_tls else (None, None))))
    serving = [asyncio.create_task(server.serve(sockets=[listener])) for server, listener in zip(servers, listeners, strict=True)]
    while not all(task.done() for task in serving):
        await asyncio.wait(serving, timeout=WATCH_EVERY_S)
        ends = servers[0].should_exit or is_over()
        for server in servers:
            server.should_exit = ends
    await asyncio.gather(*serving)


def _server(app: Starlette, connections: Connections, chain: Path | None, key: Path | None) -> uvicorn.Server:
    """A server of one port, with TLS if there is a certificate."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=cast("type[asyncio.Protocol]", partial(BoundedHttp, connections)),  # uvicorn only calls it
            ws=cast("type[asyncio.Protocol]", partial(BoundedWebSocket, connections)),
            ssl_certfile=chain,
            ssl_keyfile=key,
            ws_max_size=MAX_BODY_BYTES,
            ws_ping_interval=PING_EVERY_S,
            ws_ping_timeout=PING_EVERY_S,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # a client's address is its connection's
            server_header=False,
            backlog=connections.backlog,
            timeout_graceful_shutdown=SHUTDOWN_GRACE_S,
        )
    )
    server.capture_signals = nullcontext  # type: ignore[assignment] # the core goes on serving while requests finish
    return server


def _host_names(options: ServeOptions, listener: socket.socket) -> HostNames:
    """The host names under which requests may address the core."""
    bound = ipaddress.ip_address(listener.getsockname()[0])
    own = () if bound.is_loopback else (str(bound), socket.gethostname(), socket.getfqdn())
    names = frozenset(name.lower() for name in (options.host, *own, *options.allowed_hosts))
    return HostNames(names, any_address=bound.is_unspecified)


def _idle_for(clients: ConnectedClients, seconds: float | None) -> bool:
    if seconds is None or clients.alone_for_s() < seconds:
        return False
    log.info("no client has been connected for %g s", seconds)
    return True


@contextmanager
def _signals_that_end_gently() -> Iterator[list[int]]:
    """Make SIGINT and SIGTERM end the server, not the process; the signals that have arrived."""
    signals: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    before = {
        number: signal.signal(number, lambda number, _: signals.append(number)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _warn_of_network(options: ServeOptions, listener: socket.socket) -> None:
    """Say how other machines reach the core, and what protects it."""
    address, port = listener.getsockname()[:2]
    if options.certificate is not None:
        log.info("serving TLS at %s:%d; clients connect to wss://HOST:%d, HOST as in the certificate", address, port, port)
    elif not ipaddress.ip_address(address).is_loopback:
        log.warning(
            "%s accepts connections from other machines, and they are not encrypted: others on the network can read"
            " tokens and code. Use --tls-cert and --tls-key, or a proxy",
            options.host,
        )


def _url(listener: socket.socket) -> str:
    """The listener's URL for clients on this machine; loopback if it listens on every address."""
    address, port = listener.getsockname()[:2]
    parsed = ipaddress.ip_address(address)
    if parsed.is_unspecified:
        parsed = ipaddress.ip_address("127.0.0.1" if parsed.version == 4 else "::1")
    return f"ws://{f'[{parsed}]' if parsed.version == 6 else parsed}:{port}/ws"


def serve_options(settings: Settings, **others: Any) -> ServeOptions:
    """How to serve by these settings; `others` are fields of ServeOptions that no setting decides."""
    engine = replace(
        engine_options(settings),
        model=resolve_model(settings.model),
        engine=resolve_engine(settings.engine),
        cache_folder=cache_folder(),
    )
    return ServeOptions(
        engine=engine,
        unload_after_s=settings.unload_after_s or None,
        exit_after_s=settings.exit_after_s or None,
        settings=core_settings(settings),
        **others,
    )


def run(options: ServeOptions, on_published: Callable[[], None] = lambda: None) -> None:
    """Serve, with the log file of the options as stderr; the errors are those of `serve`, and BadInput for the file."""
    if options.log_file is not None:
        log_to(options.log_file)
    if not serve(options, on_published=on_published):
        os._exit(0)  # a normal exit would stop the model's thread within torch, which aborts the process


def log_to(file: Path) -> None:
    """Append what this process writes to stderr to the file; BadInput if it cannot be written."""
    try:
        log = file.open("ab", buffering=0)
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}") from error
    os.dup2(log.fileno(), sys.stderr.fileno())
