"""The inference core as a library: requests go in, share forwards, and their completions come out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inference.backends.model import Model
from inference.engine.alternatives import Branches
from inference.engine.completing import Tools, complete
from inference.engine.request_run import Cancelled, Run, Stopped
from inference.engine.slots import Slots
from inference.engine.suggestion_drafter import Memories
from inference.engine.turns import Turns
from inference.text.healing import Healer
from inference.text.tokenization import TextTokenizer
from kv_store.interface import KVStore, StoreStats
from protocol.errors import DeviceLost, MidfillError
from protocol.messages import Completion, CompletionRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What people and language servers want to know of a loaded model."""

    model: str
    device: str
    context_tokens: int
    chars_per_token: float  # of source code


@dataclass(frozen=True, slots=True)
class Policy:
    """How the engine goes about its work; none of it changes a text."""

    prefill_chunk: int = 256  # tokens of a prompt per forward, and so how long everybody else may have to wait
    slots: int = 1  # workspaces: so many prompts are resident without a copy
    batching: bool = True  # requests share forwards, as many as there are slots
    speculation: bool = True  # what the model will say is guessed at, and verified in one forward


@dataclass(frozen=True, slots=True)
class DeviceHooks:
    """What the engine asks of its device beside forwards; by default, of one that needs nothing."""

    prepare: Callable[[], bool] = lambda: False  # does a step of work ahead of need; False if nothing is left to do
    is_lost: Callable[[], bool] = lambda: False  # whether this process cannot use the device any more
    give_memory_back: Callable[[], None] = lambda: None  # what allocators keep once the engine is gone


class Engine:
    """A model, its tokenizer and what is resident. One thread uses it.

    `begin` takes a request up, and every `step` is one forward for all that are at work: each contributes the chunk
    of tokens that it needs next (`completing` tells a request's own story). Chunks of keystrokes and of decoding
    have a place in every forward; long prompts take turns (`turns`).
    """

    def __init__(
        self,
        info: EngineInfo,
        model: Model,
        tokenizer: TextTokenizer,
        store: KVStore,
        policy: Policy,
        healer: Healer | None = None,
        device: DeviceHooks = DeviceHooks(),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.info = info
        self.tokenizer = tokenizer
        self._model = model
        self._store = store
        self._slots = Slots(policy.slots, model.new_workspace, store, model.alignment)
        self._memories = Memories()
        self._tools = Tools(
            tokenizer,
            healer,
            Branches(tokenizer, healer),
            self._slots,
            self._memories if policy.speculation else None,
            model.context_tokens,
        )
        self._batching = policy.batching
        self.device = device
        self._turns = Turns(policy.prefill_chunk)
        self._clock = clock

    @property
    def capacity(self) -> int:
        """How many requests can be at work at once."""
        return self._slots.count if self._batching else 1

    def complete(self, request: CompletionRequest, cancelled: Cancelled = lambda: False) -> Completion:
        """The greedy completion of a request; BadInput where the request cannot be used.

        `cancelled` is asked before every forward. A cancelled request answers with no text, and leaves what it
        had prefilled resident. With `max_tokens=0` the whole prompt is made resident and saved, and the text is empty.
        """
        run = self.begin(request, cancelled)
        while not run.has_ended:
            self.step()
        return run.completion()

    def begin(self, request: CompletionRequest, cancelled: Cancelled = lambda: False, client: str = "") -> Run:
        """Take a request up: it has its workspace, and what is resident of its prompt.

        It has ended already where no forward is needed. At most `capacity` can be at work. Requests of the same
        `client` share its turns.
        """
        at_work = len(self._turns.runs)
        assert at_work < self.capacity, f"{at_work} requests are at work, and no more can be"
        self._turns.note_client(client, self._clock())
        run = Run(request, cancelled, complete(request, self._tools, cancelled, self._chunk_tokens(client)), client)
        if not run.has_ended:
            self._turns.runs.append(run)
        self._check_device(run)
        return run

    def step(self) -> list[Run]:
        """One forward, for all who have a place in it; the requests that have ended with it, or were cancelled.

        DeviceLost where one has failed and no other could do better.
        """
        ended = self.drop_cancelled()
        sharing = self._turns.next()
        if sharing:
            started = self._clock()
            self._forward(sharing)
            self._turns.took(self._clock() - started)
        ended += self._turns.take_ended()
        for run in ended:
            self._check_device(run)
        return ended

    def drop_cancelled(self) -> list[Run]:
        """End the requests that are cancelled, so that others can be begun; those that have ended with it."""
        for run in self._turns.runs:
            if run.cancelled():
                run.end(Stopped())
        return self._turns.take_ended()

    def forget(self, session: str) -> None:
        """Drop what is resident for the session's document alone, and what it was suggested, whichever the client."""
        self._slots.forget(session)
        self._memories.forget(session)

    def release(self, session: str) -> None:
        """The session's document was closed: what is resident for it stays by the store's ordinary rules."""
        self._slots.release(session)

    def save(self, seconds: float | None = None) -> bool:
        """Save to disk what is resident, the most recently used first, for about so many seconds (None: all of it).

        True where nothing is left to be saved.
        """
        started = time.monotonic()
        if not self._slots.save(seconds):
            return False
        return self._store.save(None if seconds is None else max(0.0, started + seconds - time.monotonic()))

    def stats(self) -> StoreStats:
        """What the store holds."""
        return self._store.stats()

    def check_integrity(self) -> None:
        """Raise AssertionError where the store's accounts do not add up."""
        self._store.check_integrity()

    def abandon(self) -> None:
        """Give back what the store holds of the system; nothing is saved, since the device cannot be read."""
        self._store.close()

    def close(self, save_s: float | None = None) -> None:
        """Save what can be saved in so many seconds (None: all), and give back what the store holds of the system."""
        try:
            if not self.save(save_s):
                log.warning("no time was left to save the KV that was used least recently")
        finally:
            self._store.close()

    def _chunk_tokens(self, client: str) -> Callable[[], int]:
        return lambda: self._turns.chunk_tokens(client, self._clock())

    def _check_device(self, run: Run) -> None:
        error = run.failure
        if error is not None and not isinstance(error, MidfillError) and self.device.is_lost():
            raise DeviceLost(f"{self.info.device} fails every call, after {error!r}") from error

    def _forward(self, runs: Sequence[Run]) -> None:
        try:
            answers = self._model.forward([run.chunk for run in runs if run.chunk])
        except Exception as error:  # noqa: BLE001 - each of them is told
            for run in runs:
                run.end(error)
        else:
            for run, choices in zip(runs, answers, strict=True):
                run.resume(choices)
