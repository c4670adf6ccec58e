"""The base of all APIs: what their handlers share."""

from __future__ import annotations

from datetime import UTC, datetime

from inference.server.http.asking import Asking
from inference.server.http.bodies import BodyReader


class Api:
    """A handler reads its body by `_bodies`, and answers from the pieces that `_asking` gives."""

    def __init__(self, asking: Asking, bodies: BodyReader) -> None:
        self._asking = asking
        self._bodies = bodies
        self._started = datetime.now(UTC)

    @property
    def _model(self) -> str:
        return self._asking.scheduler.status.model
