"""Decides in which documents prompts are made resident before the user types there, by signs of typing and by power."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

import psutil

from lsp_server.suggesting.open_document import OpenDocument
from lsp_server.suggesting.open_documents import OpenDocuments

logger = logging.getLogger(__name__)

# So long after an edit the user counts as editing; who only reads moves the cursor for longer.
_EDITING_S = 300.0

# A client announces a view of a document by several messages: its focus, then its cursor.
_ARRIVING_S = 1.0

# The power supply is asked at most so often.
_POWER_S = 60.0


class Preparing:
    """Judges documents by the setting `prepareAhead`.

    While the user edits, a document that was edited lately is prepared at each cursor move, and of the others the one
    that the user goes to first after an edit, once. So who goes from one file to the next and types finds it ready,
    and who looks through files, or clicks around in one, costs nothing.
    """

    def __init__(
        self,
        documents: OpenDocuments,
        on_battery: Callable[[], bool] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._documents = documents
        self._ask_power = on_battery or runs_on_battery
        self._now = now
        self._on_battery = False
        self._asked_at = -math.inf
        self._followed_edit = -math.inf  # the latest edit when a document without one was last prepared
        self._guest: OpenDocument | None = None  # this document
        self._arrived_at = -math.inf

    def allows(self, opened: OpenDocument) -> bool:
        """Whether the prompt of the user's place in the document is to be made resident now."""
        settings = self._documents.settings
        if settings.prepare_ahead != "editing":
            return settings.prepare_ahead == "always"
        if self._on_battery and not settings.core:  # a core on another machine has power of its own
            return False
        now, edits = self._now(), [(each.session, each.edited_at) for each in self._documents]
        if any(session == opened.session and now - at <= _EDITING_S for session, at in edits):
            return True
        if opened is self._guest and now - self._arrived_at <= _ARRIVING_S:
            return True
        latest = max((at for _, at in edits), default=-math.inf)
        if latest <= self._followed_edit or now - latest > _EDITING_S:
            return False
        self._guest, self._arrived_at, self._followed_edit = opened, now, latest
        return True

    def rest(self) -> None:
        """Renew what is known of the power supply; call it where no user waits."""
        if self._now() - self._asked_at >= _POWER_S and self._documents.settings.prepare_ahead == "editing":
            self._asked_at, self._on_battery = self._now(), self._ask_power()


def runs_on_battery() -> bool:
    """Whether this machine runs on its battery; False if it has none, or does not say."""
    try:
        battery = psutil.sensors_battery()
    except Exception as error:  # noqa: BLE001 -- psutil passes on what drivers and virtual machines fail with
        logger.debug("the power supply is unknown: %r", error)
        return False
    return battery is not None and battery.power_plugged is False
