"""A look into the workspaces of an engine."""

from __future__ import annotations

from inference.engine.engine import Engine
from inference.engine.slot import Slot


def last_slot(engine: Engine) -> Slot:
    """The workspace that was used last, of an engine that is at no work."""
    assert not engine._slots._lent
    return engine._slots._idle[-1]
