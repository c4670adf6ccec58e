"""A look into the workspaces of an engine."""

from __future__ import annotations

from inference.engine import Engine
from inference.resident import ResidentPrompt


def only_slot(engine: Engine) -> ResidentPrompt:
    """What is in the workspace of an engine that has one, and is at no work."""
    (slot,) = engine._slots._idle
    return slot
