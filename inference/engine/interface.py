"""The interface of an engine, as the scheduler uses it: begin requests, step, end the cancelled ones, close.

`inference.engine.engine` computes in this process; `inference.remote` passes requests to another process or machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from inference.engine.request import Request
from inference.text.tokenization import TextTokenizer
from kv_store.interface import SessionKey, StoreStats
from protocol.messages import Completion, CompletionRequest


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Facts about a loaded model, for users and language servers."""

    model: str
    device: str
    context_tokens: int
    chars_per_token: float  # of source code
    weights_bytes: int = 0  # in memory; 0 if another process holds them
    notice: str = ""  # what users should know about it; empty if nothing


@dataclass(frozen=True, slots=True)
class DeviceHooks:
    """Device operations other than forwards; the defaults suit a device that needs none."""

    prepare: Callable[[], bool] = lambda: False  # runs one step of idle work; False if none is left
    is_lost: Callable[[], bool] = lambda: False  # whether this process can no longer use the device
    give_memory_back: Callable[[], None] = lambda: None  # frees what allocators hold after the engine is closed


class AnyEngine(Protocol):
    """For one thread only, except for `wake`."""

    info: EngineInfo
    device: DeviceHooks
    tokenizer: TextTokenizer

    @property
    def capacity(self) -> int:
        """Number of requests that can be at work at once."""
        ...

    @property
    def notice(self) -> str:
        """A line for users about the engine's state; empty without anything to say."""
        return ""

    @property
    def is_gone(self) -> bool:
        """Whether the engine can serve no further request and must be loaded anew; a lost device raises DeviceLost."""
        return False

    def begin(self, request: Request) -> None:
        """Start a request; at most `capacity` can be at work. It ends within one step after it became unwanted."""
        ...

    def complete(self, spec: CompletionRequest, user: str = "") -> Completion:
        """Run one request to its end; raises the error that ended it, such as BadInput for an invalid request.

        `max_tokens=0` makes the whole prompt resident, saves it and returns an empty text.
        """
        request = Request(spec, user=user)
        self.begin(request)
        while not request.has_ended:
            self.step()
        return request.completion()

    def drop_unwanted(self) -> Sequence[Request]:
        """End the requests that are cancelled or give way, which makes room for others, and return them.

        They have an empty text, and the tokens of theirs that were prefilled stay resident.
        """
        ...

    def step(self) -> Sequence[Request]:
        """Run or await the next progress of the requests at work; returns those that ended."""
        ...

    def wake(self) -> None:
        """Make a `step` that waits return soon: there is a new request or a cancelled one. From any thread."""
        return

    def forget(self, document: str) -> None:
        """Drop the KV of the document, for every client."""
        ...

    def documents(self) -> set[str]:
        """The documents whose text or KV the engine may have."""
        return set()

    def release(self, session: SessionKey) -> None:
        """Treat the session's KV as no longer needed, because its document is closed."""
        ...

    def save(self, seconds: float | None = None, *, snapshots: bool = True) -> bool:  # noqa: ARG002 - saves nothing
        """Save resident KV for about `seconds` (None: all of it); True if nothing is left to save.

        Then `snapshots` of recurrent layers, one of which can take a second.
        """
        return True

    def free(self, *, disk: bool) -> None:
        """Drop all resident KV from memory, and with `disk` also what is saved; no request may be at work."""
        ...

    def stats(self) -> StoreStats:
        """Statistics of the resident KV."""
        ...

    def abandon(self) -> None:
        """Release system resources without saving."""
        ...

    def close(self, save_s: float | None = None) -> None:
        """Save for at most `save_s` seconds (None: everything), and release system resources."""
        ...
