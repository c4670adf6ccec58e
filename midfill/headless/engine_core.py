"""An engine in this process, used in place of a connection to the core."""

from __future__ import annotations

from inference.engine.interface import AnyEngine
from inference.engine.sessions import session_key
from protocol.messages import Completion, CompletionRequest


class EngineCore:
    """Adapts an engine to the interface of a connection to the core."""

    ready = True

    def __init__(self, engine: AnyEngine) -> None:
        self.engine = engine

    @property
    def chars_per_token(self) -> float:
        return self.engine.info.chars_per_token

    async def complete(self, request: CompletionRequest) -> Completion:
        return self.engine.complete(request)

    def forget(self, session: str) -> None:
        self.engine.forget(session_key(session).document)

    def release(self, session: str) -> None:
        self.engine.release(session_key(session))
