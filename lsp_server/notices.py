"""What one client is told: midfill's own notifications, messages and progress."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any
from urllib.parse import unquote

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.progress import Progress

from lsp_server.core_client.link import PREFILL_SILENCE_S, LinkStatus
from lsp_server.custom_messages import DID_CHANGE_STATUS, REASON, REFRESH, RESYNC, STATUS, USAGE
from lsp_server.documents.positions import ClientPosition
from lsp_server.suggesting.reasons import Reason, of_core
from lsp_server.suggesting.requests import PromptCost
from protocol.messages import Usage

logger = logging.getLogger(__name__)


class ShownProgress:
    """One progress at a time, which a task shows while there is a message, updates and ends."""

    def __init__(
        self,
        progress: Progress,
        delay_s: float = 0.0,
        silence_s: float | None = None,
        *,
        title: str = "midfill",
        enabled: bool = False,
        on_cancel: Callable[[], None] | None = None,
    ) -> None:
        """Show nothing within `delay_s`, and end the progress if nothing has updated it for `silence_s`.

        The user may cancel it if there is an `on_cancel`, which is then called.
        """
        self.enabled = enabled
        self._title = title
        self._on_cancel = on_cancel
        self._progress = progress
        self._delay_s = delay_s
        self._silence_s = silence_s
        self._message: str | None = None
        self._percentage: int | None = None
        self._changed = asyncio.Event()
        self._shown: asyncio.Task[None] | None = None

    def update(self, message: str | None, share: float | None = None) -> None:
        """Show the message and the share (0..1) that is done; None ends the progress."""
        self._message, self._percentage = message, None if share is None else round(share * 100)
        self._changed.set()
        if self.enabled and self._shown is None and message is not None:
            self._shown = asyncio.create_task(self._show())

    async def _show(self) -> None:
        try:
            await asyncio.sleep(self._delay_s)
            if self._message is not None:
                await self._run(str(uuid.uuid4()))
        except JsonRpcException as error:
            logger.info("the client shows no progress: %s", error)
        finally:
            self._shown = None

    async def _run(self, token: str) -> None:
        await self._progress.create_async(token)
        can_cancel = self._on_cancel is not None
        begin = types.WorkDoneProgressBegin(
            self._title, cancellable=can_cancel, message=self._message, percentage=self._percentage
        )
        self._progress.begin(token, begin)
        self._progress.tokens[token].add_done_callback(self._done)
        while self._message is not None:
            report = types.WorkDoneProgressReport(cancellable=can_cancel, message=self._message, percentage=self._percentage)
            self._progress.report(token, report)
            self._changed.clear()
            try:
                async with asyncio.timeout(self._silence_s):
                    await self._changed.wait()
            except TimeoutError:
                break
        self._progress.end(token, types.WorkDoneProgressEnd())

    def _done(self, progress: Future[None]) -> None:
        if self._on_cancel is not None and progress.cancelled():
            self._on_cancel()


_USAGE = Usage.__struct_fields__
# The delay shows no progress for a core that is already running.
_LOADING_DELAY_S = 0.5


def reason_json(reason: Reason | None) -> dict[str, Any] | None:
    """The reason as clients get it; null if there is none."""
    return None if reason is None else asdict(reason)


class Notices:
    """Notifies one client; sends midfill's own notifications only if the client's capabilities request them."""

    def __init__(
        self, notify: Callable[[str, object], None], show: Callable[[types.ShowMessageParams], None], progress: Progress
    ) -> None:
        self._notify = notify
        self._show = show
        self._loading = ShownProgress(progress, delay_s=_LOADING_DELAY_S)
        self._prefill = ShownProgress(progress, silence_s=PREFILL_SILENCE_S)  # of the document that the core spoke of last
        self._prefilled_uri = ""
        self._knows_midfill = False
        self._wants_status = False
        self._last_error = ""
        self._warnings: set[str] = set()
        self._core_status: dict[str, object] = {"busy": False, "message": "", "kind": "Inactive"}

    def introduce(self, client: types.ClientCapabilities) -> None:
        experimental = client.experimental
        asked = experimental if isinstance(experimental, dict) else {}
        self._knows_midfill = bool(asked.get("midfill"))
        self._wants_status = bool(asked.get("didChangeStatus"))
        shows_progress = bool(client.window and client.window.work_done_progress)
        self._loading.enabled = self._prefill.enabled = shows_progress

    def error(self, message: str) -> None:
        """Show a message that the user must act on; a repeated one is shown once."""
        if message != self._last_error:
            self._last_error = message
            self._show(types.ShowMessageParams(types.MessageType.Error, f"midfill: {message}"))

    def warning(self, message: str) -> None:
        """Show a message that the user may want to act on, once."""
        if message not in self._warnings:
            self._warnings.add(message)
            self._show(types.ShowMessageParams(types.MessageType.Warning, f"midfill: {message}"))

    def core_status(self, status: LinkStatus) -> None:
        if status.state == "failed":
            self.error(status.message or "the core failed")
        if status.state not in ("starting", "loading"):
            self._loading.update(None)
        elif core := status.core:
            self._loading.update(core.detail or f"loading {core.model}", core.progress)
        else:
            self._loading.update("starting the core")
        params = {
            "state": status.state,
            "message": status.message,
            "model": status.core.model if status.core else "",
            "device": status.core.device if status.core else "",
            "progress": status.core.progress if status.core else None,
            "reason": reason_json(of_core(status)),
        }
        self._notify_midfill(STATUS, params)
        kind = {"failed": "Error", "stopped": "Inactive"}.get(status.state, "Normal")
        busy = status.state in ("starting", "loading")
        self._core_status = {"busy": busy, "message": status.message, "kind": kind}
        self._notify_status(self._core_status)

    def prefill(self, uri: str, tokens: tuple[int, int] | None) -> None:
        """Report how many tokens of a document's prompt are resident, of how many; None at the end."""
        if tokens is not None:
            self._prefilled_uri = uri
            name = unquote(uri.rpartition("/")[2].partition("#")[0])
            self._prefill.update(f"reading {name}", tokens[0] / tokens[1])
        elif uri == self._prefilled_uri:
            self._prefill.update(None)

    def reason(self, uri: str, reason: Reason | None) -> None:
        """Report why a document gets no suggestions; None if it gets them."""
        self._notify_midfill(REASON, {"textDocument": {"uri": uri}, "reason": reason_json(reason)})
        if reason is not None and reason.kind in ("off", "manual", "snoozed", "excluded"):
            self._notify_status({"busy": False, "message": reason.explanation, "kind": "Inactive"})
        else:
            self._notify_status(self._core_status)

    def refresh(self, uri: str, *, invoked: bool = False) -> None:
        """Have the client request a suggestion at the cursor, explicitly if `invoked`."""
        self._notify_midfill(REFRESH, {"textDocument": {"uri": uri}, "invoked": invoked})

    def cost(self, cost: PromptCost, cursor: ClientPosition) -> None:
        """Report the cost of a prompt; `cursor` is the prompt's."""
        params = {
            "textDocument": {"uri": cost.uri},
            "version": cost.version,
            "position": {"line": cursor.line, "character": cursor.character},
            "isPrefetch": cost.is_prefetch,
            "source": cost.source,
            "ms": round(cost.milliseconds, 3),
            "cacheOutcome": cost.cache_outcome,
            "usage": {name: getattr(cost.usage, name) for name in _USAGE},
        }
        self._notify_midfill(USAGE, params)

    def out_of_step(self, uri: str, reason: str) -> None:
        """Report that a document's mirror no longer equals the client's text."""
        if self._knows_midfill:
            self._notify_midfill(RESYNC, {"textDocument": {"uri": uri}, "reason": reason})
        else:
            self.error(f"{reason}. No suggestions in this file until it is closed and reopened.")

    def _notify_status(self, status: dict[str, object]) -> None:
        if self._wants_status:
            self._notify(DID_CHANGE_STATUS, status)

    def _notify_midfill(self, method: str, params: object) -> None:
        if self._knows_midfill:
            self._notify(method, params)
