"""Holds the engine: loads it on first need, unloads it on request, and reports its state to listeners."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from inference.checkpoints.hub import ReportProgress
from inference.engine.interface import AnyEngine
from inference.engine.request import Request
from kv_store import purges
from kv_store.interface import SessionKey, StoreStats
from protocol import garbage
from protocol.errors import BadModel, DeviceLost, EngineUnavailable, MidfillError
from protocol.messages import CoreStatus

LoadEngine = Callable[[ReportProgress], AnyEngine]

RETRY_AFTER_S = 10.0
RETRY_UNREACHABLE_AFTER_S = 1.0
"""As RETRY_AFTER_S, for an engine in another process that does not answer: asking again costs nothing."""

log = logging.getLogger(__name__)


class EngineHolder:
    """Used by the model thread alone, but any thread may call `wake` and read the properties and `status`.

    What an engine has under the same name is the engine's; while none is loaded, nothing is at work and resident.
    """

    def __init__(
        self,
        model: str,
        load: LoadEngine,
        on_status: Callable[[CoreStatus], None],
        forget_saved: Callable[[str], None] | None = None,
        clear_saved: Callable[[], object] | None = None,
        import_early: Callable[[], None] = lambda: None,
    ) -> None:
        """`forget_saved` drops a document's text where no core has it open, and tells the other cores; `clear_saved`
        drops all from disk that no core has open.

        `import_early` imports what `load` needs; the model thread calls it before the first request.
        """
        self._load = load
        self._forget_saved = forget_saved
        self._clear_saved = clear_saved
        self.import_early = import_early
        self._on_status = on_status
        self._engine: AnyEngine | None = None
        self._is_new = False  # whether there was no rest since it was loaded
        self._failure: MidfillError | None = None
        self._failed_at = 0.0
        self._to_forget: set[str] = set()
        self.status = CoreStatus("unloaded", model)

    @property
    def is_loaded(self) -> bool:
        return self._engine is not None

    def engine(self) -> AnyEngine:
        """The engine, loaded if necessary; for RETRY_AFTER_S after a failed attempt, raises that attempt's error."""
        if self._engine is not None and self._engine.is_gone:
            self.unload(0)
        if self._engine is None:
            patience_s = RETRY_UNREACHABLE_AFTER_S if isinstance(self._failure, EngineUnavailable) else RETRY_AFTER_S
            if self._failure is not None and time.monotonic() - self._failed_at < patience_s:
                raise self._failure.with_traceback(None)
            self._engine = self._attempt()
        return self._engine

    def capacity(self) -> int:
        """Number of requests that can be at work at once; one while nothing is loaded: it triggers the loading."""
        engine = self._engine
        return 1 if engine is None else engine.capacity

    def drop_unwanted(self) -> Sequence[Request]:
        return [] if self._engine is None else self._engine.drop_unwanted()

    def step(self) -> Sequence[Request]:
        """As the engine's; announces what the engine has to report."""
        if self._engine is None:
            return []
        ended = self._engine.step()
        detail = self._engine.notice
        if self.status.state == "ready" and self.status.detail != detail:
            self._set_status(replace(self.status, detail=detail))
        return ended

    def wake(self) -> None:
        engine = self._engine
        if engine is not None:
            engine.wake()

    def save(self, seconds: float, *, snapshots: bool) -> bool:
        return self._engine is None or self._engine.save(seconds, snapshots=snapshots)

    def release(self, session: SessionKey) -> None:
        if self._engine is not None:
            self._engine.release(session)

    def forget(self, document: str) -> None:
        """Drop the text of the document, from disk too, also what other models have saved there."""
        if self._engine is None:
            self._to_forget.add(document)  # if this attempt fails, the next one forgets it too
        try:
            if self._forget_saved is not None:  # first: it also tells the process that follows if this one is killed
                self._forget_saved(document)
                self._to_forget.discard(document)
        finally:
            if self._engine is not None:
                self._engine.forget(document)

    def forget_purged(self, digests: Collection[str]) -> None:
        """As `forget`, for documents that another core was asked to forget, by the digests of their names."""
        if self._engine is not None:
            for document in self._engine.documents():
                if purges.digest(document) in digests:
                    self._engine.forget(document)

    def free(self, *, disk: bool) -> None:
        """As the engine's; while none is loaded, with `disk`, removes what no core has open."""
        if self._engine is not None:
            self._engine.free(disk=disk)
            garbage.collect_what_is_new()
            self._engine.device.give_memory_back()
            garbage.return_free_memory()
        elif disk and self._clear_saved is not None:
            self._clear_saved()

    @property
    def weights_bytes(self) -> int:
        engine = self._engine
        return 0 if engine is None else engine.info.weights_bytes

    def stats(self) -> StoreStats | None:
        return None if self._engine is None else self._engine.stats()

    def rest(self) -> None:
        """Collect garbage; at the first rest since the engine was loaded exclude it, since scanning it takes 0.1 s."""
        if self._is_new:
            self._is_new = False
            garbage.keep_what_is_loaded()
        else:
            garbage.collect_what_is_new()

    def prepare(self) -> bool:
        """Run one step of the engine's idle work; False if none is left."""
        return self._engine is not None and self._engine.device.prepare()

    def abandon(self, error: DeviceLost) -> None:
        """Drop the engine without saving, since the device is unreadable, and announce the failure."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.abandon()
        self._set_status(CoreStatus("failed", self.status.model, detail=str(error)))

    def unload(self, save_s: float | None = None) -> None:
        """Save for at most `save_s` seconds (None: everything), then free the model and all resident KV."""
        if self._engine is None:
            return
        engine, self._engine, self._is_new = self._engine, None, False
        give_memory_back = engine.device.give_memory_back
        try:
            engine.close(save_s)
        finally:
            del engine
            garbage.collect_all()  # frees the large buffers at once
            give_memory_back()
            garbage.return_free_memory()
            log.info("unloaded %s", self.status.model)
            self._set_status(CoreStatus("unloaded", self.status.model))

    def _attempt(self) -> AnyEngine:
        started = time.perf_counter()
        self._failure = failure = None
        try:
            engine = self._load(self._report)
        except MidfillError as error:
            log.error("loading %s failed: %s", self.status.model, error)
            failure = self._failed(error)
        except Exception as error:
            log.exception("loading %s failed", self.status.model)
            failure = self._failed(BadModel(f"{self.status.model} could not be loaded: {error!r}"))
        if failure is not None:
            garbage.collect_all()  # of what was loaded before the failure
            garbage.return_free_memory()
            raise failure
        garbage.expect_rest()
        self._is_new = True
        while self._to_forget:
            engine.forget(self._to_forget.pop())
        info = engine.info
        log.info("loaded %s on %s in %.1f s", info.model, info.device, time.perf_counter() - started)
        self._set_status(
            CoreStatus(
                "ready",
                self.status.model,
                device=info.device,
                detail=engine.notice,
                context_tokens=info.context_tokens,
                chars_per_token=info.chars_per_token,
            )
        )
        return engine

    def _failed(self, failure: MidfillError) -> MidfillError:
        """Keep and announce the error, without its traceback, which would keep alive what was loaded before it."""
        failure.__cause__ = failure.__context__ = None
        self._failure, self._failed_at = failure.with_traceback(None), time.monotonic()
        self._set_status(CoreStatus("failed", self.status.model, detail=str(failure)))
        return failure

    def _report(self, what: str, share: float | None) -> None:
        self._set_status(replace(self.status, state="loading", detail=what, progress=share))

    def _set_status(self, status: CoreStatus) -> None:
        self.status = status
        self._on_status(status)
