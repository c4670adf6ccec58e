"""An engine in this process, loaded from settings and used in place of a connection to the core."""

from __future__ import annotations

from inference.engine.interface import AnyEngine
from inference.loading.options import EngineOptions
from protocol.messages import Completion, CompletionRequest
from protocol.settings import Settings


def engine_options(settings: Settings) -> EngineOptions:
    """The options of an engine with these settings that saves nothing on disk."""
    return EngineOptions(
        model=settings.model,
        engine=settings.engine,
        engine_key=settings.engine_key,
        device=settings.device,
        dtype=settings.dtype,
        weights=settings.weights,
        threads=settings.threads or None,
        context_tokens=settings.context_tokens,
        slots=settings.slots or None,
        store_budget_bytes=settings.store_mb * 2**20,
        exact=settings.exact,
        fim_format=settings.fim_format,
        healing=settings.healing,
    )


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
        self.engine.forget(session)

    def release(self, session: str) -> None:
        self.engine.release(session)
