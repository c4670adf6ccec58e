"""Notifications to the client: midfill's own, and messages that the user must act on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any
from urllib.parse import unquote

from lsprotocol import types
from pygls.progress import Progress

from lsp_server.core.link import LinkStatus
from lsp_server.custom_messages import DID_CHANGE_STATUS, REASON, REFRESH, RESYNC, STATUS, USAGE
from lsp_server.editing.positions import ClientPosition
from lsp_server.progress import ShownProgress
from lsp_server.suggesting.reasons import Reason, of_core
from lsp_server.suggesting.requests import PromptCost
from protocol.messages import Usage

_USAGE = Usage.__struct_fields__
# The delay shows no progress for a core that is already running.
_LOADING_DELAY_S = 0.5
# A prefill that the core has not mentioned for so long was cancelled, and no newer request continues it.
_SILENCE_S = 3.0


def reason_json(reason: Reason | None) -> dict[str, Any] | None:
    """The reason as clients get it; null if there is none."""
    return None if reason is None else asdict(reason)


class Notices:
    """Notifies one client; sends midfill's own notifications only if the client's capabilities request them."""

    def __init__(
        self,
        notify: Callable[[str, object], None],
        show: Callable[[types.ShowMessageParams], None],
        progress: Progress,
    ) -> None:
        self._notify = notify
        self._show = show
        self._loading = ShownProgress(progress, delay_s=_LOADING_DELAY_S)
        self._prefill = ShownProgress(progress, silence_s=_SILENCE_S)  # of the document that the core spoke of last
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
        detail = status.core.detail if status.core else ""
        message = str(status.error) if status.error else "; ".join(filter(None, (detail, status.note)))
        if status.state == "failed":
            self.error(message or "the core failed")
        if status.state not in ("starting", "loading"):
            self._loading.update(None)
        elif core := status.core:
            self._loading.update(core.detail or f"loading {core.model}", core.progress)
        else:
            self._loading.update("starting the core")
        params = {
            "state": status.state,
            "message": message,
            "model": status.core.model if status.core else "",
            "device": status.core.device if status.core else "",
            "progress": status.core.progress if status.core else None,
            "reason": reason_json(of_core(status)),
        }
        self._tell(STATUS, params)
        kind = {"failed": "Error", "stopped": "Inactive"}.get(status.state, "Normal")
        busy = status.state in ("starting", "loading")
        self._core_status = {"busy": busy, "message": message, "kind": kind}
        self._tell_status(self._core_status)

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
        self._tell(REASON, {"textDocument": {"uri": uri}, "reason": reason_json(reason)})
        if reason is not None and reason.kind in ("off", "manual", "snoozed", "excluded"):
            self._tell_status({"busy": False, "message": reason.explanation, "kind": "Inactive"})
        else:
            self._tell_status(self._core_status)

    def refresh(self, uri: str, *, invoked: bool = False) -> None:
        """Have the client request a suggestion at the cursor, explicitly if `invoked`."""
        self._tell(REFRESH, {"textDocument": {"uri": uri}, "invoked": invoked})

    def cost(self, cost: PromptCost, cursor: ClientPosition) -> None:
        """Report the cost of a prompt; `cursor` is the prompt's."""
        params = {
            "textDocument": {"uri": cost.uri},
            "version": cost.version,
            "position": {"line": cursor.line, "character": cursor.character},
            "ahead": cost.ahead,
            "source": cost.source,
            "ms": round(cost.milliseconds, 3),
            "heat": cost.heat,
            "usage": {name: getattr(cost.usage, name) for name in _USAGE},
        }
        self._tell(USAGE, params)

    def lost_step(self, uri: str, reason: str) -> None:
        """Report that a document's mirror no longer equals the client's text."""
        if self._knows_midfill:
            self._tell(RESYNC, {"textDocument": {"uri": uri}, "reason": reason})
        else:
            self.error(f"{reason}. No suggestions in this file until it is closed and reopened.")

    def _tell_status(self, status: dict[str, object]) -> None:
        if self._wants_status:
            self._notify(DID_CHANGE_STATUS, status)

    def _tell(self, method: str, params: object) -> None:
        if self._knows_midfill:
            self._notify(method, params)
