"""The engine: takes requests, runs them in shared forwards and returns their completions."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from inference.backends.model import Model
from inference.engine.chunk_scheduler import ChunkScheduler, Run
from inference.engine.completing import SharedState, Stopped, complete
from inference.engine.drafts import DraftHistories
from inference.engine.interface import AnyEngine, DeviceHooks, EngineInfo
from inference.engine.partial_words import PartialWordCache
from inference.engine.request import Request
from inference.engine.short_prompts import PrefillSpeed
from inference.engine.slots import Slots
from inference.text.healing import Healer
from inference.text.tokenization import TextTokenizer
from kv_store.interface import SessionKey, StoreStats
from kv_store.store import PagedStore
from protocol.errors import BadModel, DeviceLost, MidfillError

NOT_A_NUMBER = (
    "{} computes probabilities that are no numbers: its weights are damaged, or too large for their dtype; "
    "load it again from its source, or run it with dtype float32"
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How the engine schedules its work; no field changes a text."""

    prefill_chunk: int = 256  # prompt tokens per forward, which bounds how long other requests wait
    most_prefill_chunk: int = 0  # how far it grows with the measured speed
    slots: int = 1  # workspaces: number of requests at work together
    kept: int = 1  # of them: number of prompts that are resident without a copy while nothing is at work
    batching: bool = True  # requests share forwards, as many as there are slots
    speculation: bool = True  # drafts are verified in one forward


class Engine(AnyEngine):
    """A model, its tokenizer, its slots and its store. For one thread only.

    `begin` starts a request, and every `step` runs one forward over the next chunk of each request at work
    (`completing` describes the steps of one request; `chunk_scheduler` says whose chunks share a forward).
    """

    def __init__(
        self,
        info: EngineInfo,
        model: Model,
        tokenizer: TextTokenizer,
        store: PagedStore,
        config: EngineConfig,
        healer: Healer | None = None,
        device: DeviceHooks = DeviceHooks(),  # noqa: B008 - it is immutable
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.info = info
        self.tokenizer = tokenizer
        self._model = model
        self._store = store
        self._slots = Slots(config.slots, config.kept, model.new_workspace, store, model.context_tokens)
        self._histories = DraftHistories()
        speed = PrefillSpeed(assumed_fast=not info.device.startswith("cpu"))
        self._shared = SharedState(
            tokenizer,
            healer,
            PartialWordCache(tokenizer.bytes_of),
            self._slots,
            self._histories if config.speculation else None,
            model.context_tokens,
            speed,
        )
        self._batching = config.batching
        self.device = device
        self._chunks = ChunkScheduler(config.prefill_chunk, config.most_prefill_chunk, speed)
        self._clock = clock

    @property
    def capacity(self) -> int:
        return self._slots.count if self._batching else 1

    @property
    def notice(self) -> str:
        return self.info.notice

    def begin(self, request: Request) -> None:
        """Lend the request a workspace and match its prompt with resident tokens; it has ended if it needs no forward.

        Requests of one user share its turns.
        """
        at_work = len(self._chunks.runs)
        assert at_work < self.capacity, f"{at_work} requests are at work, which is the engine's capacity"
        self._chunks.note_user(request.turn, self._clock())
        request.start()
        run = Run(request, complete(request, self._shared, partial(self._chunk_tokens, request)))
        if not request.has_ended:
            self._chunks.runs.append(run)
        self._check_device(request)

    def step(self) -> list[Request]:
        """Run one forward; returns the requests that ended with it or were cancelled.

        Raises DeviceLost if a forward failed and the device can no longer be used.
        """
        ended = self.drop_unwanted()
        started = self._clock()
        if sharing := self._chunks.next(started):
            self._forward(sharing)
            self._chunks.took(self._clock() - started)
        ended += self._chunks.take_ended()
        for request in ended:
            self._check_device(request)
        return ended

    def drop_unwanted(self) -> list[Request]:
        for run in self._chunks.runs:
            if run.request.is_unwanted:
                run.end(Stopped())
        return self._chunks.take_ended()

    def forget(self, document: str) -> None:
        """Drop the KV and the remembered suggestions of the document, for every client."""
        self._slots.forget(document)
        self._histories.forget(document)
        self._shared.partial_words.forget(document)

    def documents(self) -> set[str]:
        remembered = chain(self._histories.sessions(), self._shared.partial_words.sessions())
        return self._slots.documents().union(each.document for each in remembered)

    def release(self, session: SessionKey) -> None:
        self._slots.unpin(session)

    def save(self, seconds: float | None = None, *, snapshots: bool = True) -> bool:
        """Save resident KV to disk, the most recently used first."""
        started = time.monotonic()
        if not self._slots.save(seconds):
            return False
        left = None if seconds is None else max(0.0, started + seconds - time.monotonic())
        return self._store.save(left, snapshots=snapshots)

    def free(self, *, disk: bool) -> None:
        """Drop all resident KV from memory, after saving it, or with `disk` from everywhere; no request may be at work.

        On a GPU the workspaces stay allocated, since recorded graphs use their addresses.
        """
        assert not self._chunks.runs, f"{len(self._chunks.runs)} requests are at work"
        if not disk:
            self.save()
        self._shared.partial_words.clear()
        self._slots.clear(keep_workspaces=not self.info.device.startswith("cpu"))
        self._store.clear(disk=disk)

    def stats(self) -> StoreStats:
        slots = self._slots
        return replace(self._store.stats(), workspaces=slots.allocated, workspaces_bytes=slots.workspaces_bytes)

    def abandon(self) -> None:
        """Release the store's system resources without saving, since the device is unreadable."""
        self._store.close()

    def close(self, save_s: float | None = None) -> None:
        try:
            if not self.save(save_s):
                log.warning("the deadline passed before the least recently used KV was saved")
        finally:
            self._store.close()

    def _chunk_tokens(self, request: Request) -> int:
        return self._chunks.chunk_tokens(request.turn, self._clock(), prefetch=request.is_prefetch)

    def _check_device(self, request: Request) -> None:
        error = request.outcome
        if isinstance(error, Exception) and not isinstance(error, MidfillError) and self.device.is_lost():
            raise DeviceLost(f"{self.info.device} fails every call since {error!r}") from error

    def _forward(self, runs: Sequence[Run]) -> None:
        try:
            answers = self._model.forward([run.chunk for run in runs if run.chunk])
        except Exception as error:  # noqa: BLE001 - every affected request reports it
            for run in runs:
                run.end(error)
        else:
            for run, choices in zip(runs, answers, strict=True):
                if any(math.isnan(choice.logprob) for choice in choices):
                    run.end(BadModel(NOT_A_NUMBER.format(self.info.model)))
                else:
                    run.resume(choices)
