"""The model in memory: loaded on first need, dropped when told to, with its state told to who listens."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from msgspec.structs import replace

from inference.checkpoints.hub import Progress
from inference.engine.engine import Engine
from inference.engine.request_run import Run
from protocol import garbage
from protocol.errors import BadModel, DeviceLost, MidfillError
from protocol.messages import CoreStatus

LoadEngine = Callable[[Progress], Engine]

RETRY_AFTER_S = 10.0

log = logging.getLogger(__name__)


class EngineHolder:
    """Used by the model thread alone, except for `status`, which any thread may read."""

    def __init__(
        self,
        model: str,
        load: LoadEngine,
        on_status: Callable[[CoreStatus], None],
        forget_saved: Callable[[str], None] | None = None,
    ) -> None:
        """`forget_saved` drops the text of a session's document from disk while no model is loaded."""
        self._load = load
        self._forget_saved = forget_saved
        self._on_status = on_status
        self._engine: Engine | None = None
        self._failure: MidfillError | None = None
        self._failed_at = 0.0
        self._to_forget: set[str] = set()
        self.status = CoreStatus("unloaded", model)

    @property
    def is_loaded(self) -> bool:
        return self._engine is not None

    def engine(self) -> Engine:
        """The engine, loaded if need be; the error of the last attempt, for RETRY_AFTER_S, where that failed."""
        if self._engine is None:
            if self._failure is not None and time.monotonic() - self._failed_at < RETRY_AFTER_S:
                raise self._failure
            self._engine = self._attempt()
        return self._engine

    @property
    def capacity(self) -> int:
        """How many requests can be at work at once; one while nothing is loaded, which that one has to do."""
        return 1 if self._engine is None else self._engine.capacity

    def drop_cancelled(self) -> list[Run]:
        """As the engine's; nothing is at work while nothing is loaded."""
        return [] if self._engine is None else self._engine.drop_cancelled()

    def step(self) -> list[Run]:
        """As the engine's; nothing is at work while nothing is loaded."""
        return [] if self._engine is None else self._engine.step()

    def save(self, seconds: float) -> bool:
        """As the engine's; nothing is to be saved while nothing is loaded."""
        return self._engine is None or self._engine.save(seconds)

    def release(self, session: str) -> None:
        """As the engine's; nothing is pinned while nothing is loaded."""
        if self._engine is not None:
            self._engine.release(session)

    def forget(self, session: str) -> None:
        """Drop the text of the session's document, from disk too where nothing is loaded."""
        if self._engine is None:
            self._to_forget.add(session)  # another attempt, where this one fails
            if self._forget_saved is not None:
                self._forget_saved(session)
                self._to_forget.discard(session)
        else:
            self._engine.forget(session)

    def prepare(self) -> bool:
        """Do a step of the work that the engine does while idle; False if nothing is left to do."""
        return self._engine is not None and self._engine.device.prepare()

    def abandon(self, error: DeviceLost) -> None:
        """Drop the engine, of which nothing can be saved, and announce the failure."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.abandon()
        self._tell(CoreStatus("failed", self.status.model, detail=str(error)))

    def unload(self, save_s: float | None = None) -> None:
        """Give the model's memory back, with all that is resident, and save for so many seconds (None: all) before."""
        if self._engine is None:
            return
        engine, self._engine = self._engine, None
        give_memory_back = engine.device.give_memory_back
        try:
            engine.close(save_s)
        finally:
            del engine
            garbage.collect_all()  # buffers of this size are not left for later
            give_memory_back()
            garbage.return_free_memory()
            log.info("unloaded %s", self.status.model)
            self._tell(CoreStatus("unloaded", self.status.model))

    def _attempt(self) -> Engine:
        started = time.perf_counter()
        try:
            engine = self._load(self._report)
        except Exception as error:
            failure = _as_midfill_error(error, self.status.model)
            log.error("loading %s failed: %s", self.status.model, failure, exc_info=None if failure is error else error)
            self._failure, self._failed_at = failure, time.monotonic()
            self._tell(CoreStatus("failed", self.status.model, detail=str(failure)))
            raise failure from error
        garbage.keep_what_is_loaded()  # to go through all of it again would hold up a keystroke for a tenth of a second
        self._failure = None
        while self._to_forget:
            engine.forget(self._to_forget.pop())
        info = engine.info
        log.info("loaded %s on %s in %.1f s", info.model, info.device, time.perf_counter() - started)
        self._tell(
            CoreStatus(
                "ready",
                self.status.model,
                device=info.device,
                context_tokens=info.context_tokens,
                chars_per_token=info.chars_per_token,
            )
        )
        return engine

    def _report(self, what: str, share: float | None) -> None:
        self._tell(replace(self.status, state="loading", detail=what, progress=share))

    def _tell(self, status: CoreStatus) -> None:
        self.status = status
        self._on_status(status)


def _as_midfill_error(error: Exception, model: str) -> MidfillError:
    return error if isinstance(error, MidfillError) else BadModel(f"{model} could not be loaded: {error!r}")
