"""The link to the core that the settings name: finds the core, connects, and reconnects within a retry limit."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal
from urllib.parse import urlsplit

from lsp_server.core_client.client import CoreClient, Endpoint, OnPrefill
from lsp_server.core_client.processes import LocalCore, Spawn, core_command, core_environment, endpoint_of
from lsp_server.core_client.waiting import spawn
from protocol.errors import BadInput, BadSettings, CoreBlocked, CoreUnavailable, MidfillError, Unauthorized
from protocol.messages import Completion, CompletionRequest, CoreStatus
from protocol.rendezvous import (
    IDENTITY_SETTINGS,
    address_file,
    core_name,
    describe,
    differences,
    end_stop,
    read_stop,
    resolve_engine,
    resolve_model,
    runtime_folder,
)
from protocol.settings import Settings, json_name

logger = logging.getLogger(__name__)

LinkState = Literal["starting", "unloaded", "loading", "ready", "failed", "stopped"]

# The end of a connection that lasted this long does not count as a failure in a row.
_STABLE_S = 60.0
# A prefill that the core has not mentioned for so long was cancelled, and no newer request continues it.
PREFILL_SILENCE_S = 3.0
_STOPPED_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how long to retry."""

    pauses_s: tuple[float, ...]  # before the next attempt, by the failures in a row
    give_up: bool  # after the last pause; otherwise repeat it forever


LOCAL_RETRY = Retry((0.0, 0.5, 1.0, 2.0, 4.0), give_up=True)
REMOTE_RETRY = Retry((0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0), give_up=False)


@dataclass(frozen=True, slots=True)
class CoreTarget:
    """Which core to stay connected to: how to find it, and how to retry."""

    find: Callable[[], Awaitable[Endpoint]]
    retry: Retry
    stopped: Callable[[], str] = lambda: ""  # why no core may be started, while the user wants none
    start_again: Callable[[], None] = lambda: None  # ends that
    remote: bool = False  # whether it is at an address that the settings name: midfill does not start it


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """The state of the connection, and of the core behind it."""

    state: LinkState
    core: CoreStatus | None = None  # the core's last status, while connected
    note: str = ""  # further information for the user
    error: MidfillError | None = None  # why the state is "failed", if known
    remote: bool = False  # while "starting": midfill does not start this core, but waits for it to answer

    @property
    def message(self) -> str:
        """What the user should know of it: the error, or what the core and the link say."""
        said = (self.core.detail if self.core else "", self.note)
        return str(self.error) if self.error else "; ".join(filter(None, said))


class CoreLink:
    """A connection that is kept up; it calls `on_status` at every change."""

    def __init__(self, on_status: Callable[[LinkStatus], None], on_prefill: OnPrefill = lambda *_: None) -> None:
        self._on_prefill = on_prefill
        self.status = LinkStatus("stopped")
        self._on_status = on_status
        self._client: CoreClient | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._target: CoreTarget | None = None  # the keeper's
        self._forgotten: set[str] = set()  # sessions whose document's text no core may have
        self._changing = asyncio.Lock()  # there is one keeper at a time
        self._note = ""  # of this connection
        self._core: CoreStatus | None = None  # what the core of this connection said last
        self._gives_way = False  # whether it was asked to end for one with other settings, and has not refused

    @property
    def ready(self) -> bool:
        """Whether the core can answer a request now, without loading a model first."""
        return self.status.state == "ready"

    @property
    def chars_per_token(self) -> float:
        """Characters per token of source code, by the core's tokenizer; 0 while unknown."""
        return self.status.core.chars_per_token if self.status.core else 0.0

    async def connect_to(self, target: CoreTarget) -> None:
        """Disconnect from the present core, if any, and keep up a connection to this one from now on.

        While the user wants no core, the link waits.
        """
        async with self._changing:
            await self._let_go()
            self._target = target
            self._keeper = asyncio.create_task(self._keep(target))
            self._keeper.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End the connection, and do not reconnect."""
        async with self._changing:
            await self._let_go()

    def start_again(self) -> None:
        """Start the core if the user has stopped it; BadInput if the runtime folder cannot be used."""
        if self._target is not None and self._target.stopped():
            self._target.start_again()

    async def _let_go(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
        self._set(LinkStatus("stopped"))

    def complete(self, request: CompletionRequest) -> Coroutine[Any, Any, Completion]:
        """The core's completion; CoreUnavailable at once if there is no connection."""
        client = self.client
        self._forgotten.discard(request.session)
        return client.complete(request)

    def forget(self, session: str) -> None:
        """Tell the core to drop the session's document, now and at every later connection: it may be on disk."""
        self._forgotten.add(session)
        if self._client is not None:
            self._client.forget(session)

    def release(self, session: str) -> None:
        """Tell the core that the document was closed; a core connected later has nothing pinned for it."""
        if self._client is not None:
            self._client.release(session)

    @property
    def client(self) -> CoreClient:
        """The open connection; CoreUnavailable if there is none."""
        if self._client is None:
            raise CoreUnavailable("not connected to a core")
        return self._client

    async def _keep(self, target: CoreTarget) -> None:
        failures, last, blocked, pauses_s = 0, "", False, target.retry.pauses_s
        while True:
            while why := target.stopped():
                failures, last, blocked = 0, "", False
                self._set(LinkStatus("stopped", note=why))
                await asyncio.sleep(_STOPPED_PAUSE_S)
            if not blocked:
                self._set(LinkStatus("starting", note=last, remote=target.remote))
            since = time.monotonic()
            try:
                await self._live(target)
                error: MidfillError = CoreUnavailable("the core closed the connection")
            except (Unauthorized, BadInput) as refusal:
                return self._fail(refusal)
            except CoreUnavailable as unavailable:
                error = unavailable
            except OSError as os_error:  # the runtime folder, or the process
                error = CoreUnavailable(f"cannot reach or start a core: {os_error}")
            if target.stopped():
                continue
            failures = 1 if time.monotonic() - since > _STABLE_S else failures + 1
            last, blocked = str(error), isinstance(error, CoreBlocked)
            logger.warning("the connection to the core failed (%d in a row): %s", failures, error)
            if blocked or (failures == len(pauses_s) and not target.retry.give_up):
                self._fail(error)
            if failures > len(pauses_s) and target.retry.give_up and not blocked:
                return self._fail(error)
            await asyncio.sleep(pauses_s[-1 if blocked else min(failures, len(pauses_s)) - 1])

    async def _live(self, target: CoreTarget) -> None:
        """Connect, and return when the connection has ended."""
        endpoint = await target.find()
        self._note, self._core, self._gives_way = "", None, bool(endpoint.differs)
        client = await CoreClient.open(
            endpoint, self._heard, lambda why: self._refused(f"{endpoint.differs}; {why}"), self._on_prefill
        )
        if endpoint.differs:
            logger.warning("%s", endpoint.differs)
            client.stop("replace")
        for session in self._forgotten:
            client.forget(session)
        self._client = client
        try:
            await client.wait_closed()
        finally:
            self._client = None
            await client.close()

    def _refused(self, note: str) -> None:
        """Add a note to the status of this connection from now on; the core stays."""
        self._note, self._gives_way = note, False
        self._show()

    def _ended(self, keeper: asyncio.Task[None]) -> None:
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            logger.error("midfill no longer tries to connect to the core", exc_info=error)
            self._fail(MidfillError(f"internal error: {error!r}"))

    def _heard(self, core: CoreStatus) -> None:
        self._core = core
        self._show()

    def _show(self) -> None:
        """Show the core's status; the failure of one that gives way concerns settings that are no longer asked for."""
        if self._core is not None and self._core.state == "failed" and self._gives_way:
            self._set(LinkStatus("starting"))
        elif self._core is not None:
            self._set(LinkStatus(self._core.state, self._core, self._note))

    def _fail(self, error: MidfillError) -> None:
        if str(error) != str(self.status.error):
            self._set(LinkStatus("failed", error=error))

    def _set(self, status: LinkStatus) -> None:
        if status != self.status:
            self.status = status
            self._on_status(status)


# Importing torch from a cold disk on a busy machine takes long.
_START_TIMEOUT_S = 120.0
HOW_TO_START = "request a suggestion by hand, restart the core, or run `midfill core`"


def target_of(settings: Settings, since: float, spawn: Spawn = spawn) -> CoreTarget:
    """The core to stay connected to, for a client that began at `since`, in seconds since the epoch.

    A stop from before is not meant for this client: it starts a core.
    """
    return _remote_target(settings) if settings.core else _local_target(settings, since, spawn)


def same_core(one: Settings, other: Settings) -> bool:
    """Whether both settings lead to the same core in the same way."""
    names = ("core", "core_token", "model", *IDENTITY_SETTINGS)
    return all(getattr(one, name) == getattr(other, name) for name in names)


def remote_endpoint(settings: Settings) -> Endpoint:
    """The core at the address that the settings name.

    Raises BadSettings for a bad address, and Unauthorized if there is no token for it. Any client may name an
    address, so it never receives this machine's own token, which gives access to everything resident here.
    """
    try:
        url = urlsplit(settings.core)
        host, _ = url.hostname, url.port
    except ValueError:
        host = None
    if host is None or url.scheme not in ("ws", "wss"):
        raise BadSettings(f"core = {settings.core!r}: expected ws://HOST:PORT or wss://HOST:PORT")
    address = url._replace(path=url.path.rstrip("/") or "/ws").geturl()
    if not settings.core_token:
        raise Unauthorized(
            f"the core at {address} needs its token: set coreToken (--core-token, MIDFILL_CORE_TOKEN); midfill"
            " does not send this machine's own token to a configured address"
        )
    return Endpoint(address, settings.core_token)


def _remote_target(settings: Settings) -> CoreTarget:
    async def find() -> Endpoint:
        return remote_endpoint(settings)

    return CoreTarget(find, REMOTE_RETRY, remote=True)


def local_core(settings: Settings, spawn: Spawn = spawn) -> LocalCore:
    """The core of this machine for these settings; BadInput if the runtime folder cannot be used."""
    model, engine = resolve_model(settings.model), resolve_engine(settings.engine)
    settings = replace(settings, model=model, engine=engine)  # the core is started in another folder
    file = address_file(runtime_folder(), core_name(model, engine))
    command = core_command(settings, file.with_suffix(".log"))
    return LocalCore(file, command, _START_TIMEOUT_S, core_environment(settings), spawn)


def _local_target(settings: Settings, since: float, spawn: Spawn) -> CoreTarget:
    async def find() -> Endpoint:
        core = local_core(settings, spawn)
        address = await core.find_or_start()
        found = differences(address.settings, settings)
        differs = f"the running core was started with {describe(found, json_name)}" if found else ""
        return endpoint_of(address, core.file, differs)

    def stopped() -> str:
        with suppress(BadInput):  # a runtime folder that cannot be used, which `find` reports
            found = read_stop(local_core(settings).file)
            if found is not None and found.at >= since:
                return f"{found.by} stopped the core: {HOW_TO_START}"
        return ""

    return CoreTarget(find, LOCAL_RETRY, stopped, lambda: end_stop(local_core(settings).file))
