"""Keeps a connection to the core: finds it, connects, and comes back when it dies, until that is hopeless."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from lsp_server.core_client import CoreClient, Endpoint
from protocol.errors import BadInput, CoreUnavailable, MidfillError, Unauthorized
from protocol.messages import Completion, CompletionRequest, CoreStatus

logger = logging.getLogger(__name__)

LinkState = Literal["starting", "unloaded", "loading", "ready", "failed", "stopped"]

# A connection that lasted this long was no failure when it ends.
_STABLE_S = 60.0


@dataclass(frozen=True, slots=True)
class Retry:
    """How stubbornly to try again."""

    pauses_s: tuple[float, ...]  # before the next attempt, by the failures in a row
    give_up: bool  # after the last pause, or repeat it for ever


LOCAL_RETRY = Retry((0.0, 0.5, 1.0, 2.0, 4.0), give_up=True)
REMOTE_RETRY = Retry((0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0), give_up=False)


@dataclass(frozen=True, slots=True)
class CoreTarget:
    """Which core to stay connected to: how to find it, and how stubbornly."""

    find: Callable[[], Awaitable[Endpoint]]
    retry: Retry


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """What the connection, and the core behind it, are doing."""

    state: LinkState
    core: CoreStatus | None = None  # what the core said last, while connected
    error: MidfillError | None = field(default=None, compare=False)  # why the state is "failed", where that is known


class CoreLink:
    """A connection that is kept up. `on_status` hears of every change."""

    def __init__(self, on_status: Callable[[LinkStatus], None]) -> None:
        self.status = LinkStatus("stopped")
        self._on_status = on_status
        self._client: CoreClient | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._forgotten: set[str] = set()  # sessions whose document's text no core may have

    @property
    def ready(self) -> bool:
        """Whether a request would be answered now, without a model to be loaded first."""
        return self.status.state == "ready"

    @property
    def chars_per_token(self) -> float:
        """Of source code, by the core's tokenizer; 0 while that is not known."""
        return self.status.core.chars_per_token if self.status.core else 0.0

    async def connect_to(self, target: CoreTarget) -> None:
        """Let go of the core, if there is one, and keep up a connection to this one from now on."""
        await self.stop()
        self._keeper = asyncio.create_task(self._keep(target))
        self._keeper.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End the connection, and do not come back."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
        self._set(LinkStatus("stopped"))

    async def complete(self, request: CompletionRequest) -> Completion:
        """The core's answer; CoreUnavailable at once where there is no connection."""
        if self._client is None:
            raise CoreUnavailable("there is no connection to a core")
        self._forgotten.discard(request.session)
        return await self._client.complete(request)

    def forget(self, session: str) -> None:
        """Let the core drop the document's text, now and whenever one is connected that may have it on disk."""
        self._forgotten.add(session)
        if self._client is not None:
            self._client.forget(session)

    def release(self, session: str) -> None:
        """Tell the core that the document was closed; one that is connected later has nothing pinned for it."""
        if self._client is not None:
            self._client.release(session)

    async def _keep(self, target: CoreTarget) -> None:
        failures = 0
        while True:
            self._set(LinkStatus("starting"))
            since = time.monotonic()
            try:
                await self._live(target)
                error: MidfillError = CoreUnavailable("the core ends every connection")
            except (Unauthorized, BadInput) as refusal:
                return self._fail(refusal)
            except CoreUnavailable as unavailable:
                error = unavailable
            except OSError as os_error:  # the runtime folder, or the process
                error = CoreUnavailable(f"cannot reach or start a core: {os_error}")
            failures = 1 if time.monotonic() - since > _STABLE_S else failures + 1
            logger.warning("the core is gone (%d in a row): %s", failures, error)
            if failures == len(target.retry.pauses_s) and not target.retry.give_up:
                self._set(LinkStatus("failed", error=error))
            if failures > len(target.retry.pauses_s) and target.retry.give_up:
                return self._fail(error)
            await asyncio.sleep(target.retry.pauses_s[min(failures, len(target.retry.pauses_s)) - 1])

    async def _live(self, target: CoreTarget) -> None:
        """Connect, and return when the connection has ended."""
        client = await CoreClient.open(await target.find(), self._heard)
        for session in self._forgotten:
            client.forget(session)
        self._client = client
        try:
            await client.wait_closed()
        finally:
            self._client = None
            await client.close()

    def _ended(self, keeper: asyncio.Task[None]) -> None:
        if not keeper.cancelled() and (error := keeper.exception()) is not None:
            logger.error("the connection to the core is not kept up any more", exc_info=error)
            self._fail(MidfillError(f"internal error: {error!r}"))

    def _heard(self, core: CoreStatus) -> None:
        self._set(LinkStatus(core.state, core))

    def _fail(self, error: MidfillError) -> None:
        self._set(LinkStatus("failed", error=error))

    def _set(self, status: LinkStatus) -> None:
        if status != self.status:
            self.status = status
            self._on_status(status)
