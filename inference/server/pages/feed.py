"""Turns what happens on the model thread into events for dashboards; without a listener it builds none."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any

import psutil
from msgspec import structs
from rapidfuzz.distance import Prefix

from inference.engine.request import Request
from inference.scheduling.watching import Sight
from inference.server.http.streaming import event
from inference.text.stretches import Stretch
from protocol.errors import MidfillError
from protocol.heat import estimate_tokens, heat
from protocol.messages import CoreStatus, Prompt

MOST_UNREAD = 256
"""Events that a listener may leave unread; one that leaves more is disconnected."""
_REMEMBERED_SESSIONS = 256


class Feed:
    """Implements `Watch` for any number of listeners. `see` and `tell` may be called from any thread."""

    def __init__(self) -> None:
        self.built = 0
        """Number of events built so far."""
        self._lock = threading.Lock()
        self._listeners: list[Callable[[bytes | None], None]] = []
        self._prompts: dict[str, Prompt] = {}  # of each session the last one; the latest last
        self._process = psutil.Process()

    @property
    def wanted(self) -> bool:
        return bool(self._listeners)

    def see(self, sight: Sight) -> None:
        stats = sight.stats
        self._send(
            {
                "event": "sight",
                "waiting": sight.waiting,
                "at_work": sight.at_work,
                "process_bytes": self._process.memory_info().rss,
                "tiers": [] if stats is None else list(stats.tiers),
                "evicted_tokens": 0 if stats is None else stats.evicted_tokens,
                "residents": list(sight.residents),
                "answered": None if sight.answered is None else self._answered(sight.answered, sight.stretches),
            }
        )

    def tell(self, status: CoreStatus) -> None:
        """Send the core's status, if there is a listener."""
        if self.wanted:
            self._send({"event": "status", **structs.asdict(status)})

    async def listen(self, status: CoreStatus, drop: Callable[[], None]) -> AsyncGenerator[bytes]:
        """Server-sent events from now on, the status first; they end with `close`.

        Calls `drop`, which disconnects the listener, once it has left MOST_UNREAD events.
        """
        loop = asyncio.get_running_loop()
        unread: asyncio.Queue[bytes | None] = asyncio.Queue()

        def put(one: bytes | None) -> None:
            if unread.qsize() < MOST_UNREAD:
                unread.put_nowait(one)
            else:
                drop()

        def send(one: bytes | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(put, one)

        with self._lock:
            self._listeners.append(send)
        try:
            yield event({"event": "status", **structs.asdict(status)})
            while (one := await unread.get()) is not None:
                yield one
        finally:
            with self._lock:
                self._listeners.remove(send)
                if not self._listeners:
                    self._prompts.clear()

    def close(self) -> None:
        """End all streams: the core exits."""
        self._put(None)

    def _send(self, value: dict[str, Any]) -> None:
        self.built += 1
        self._put(event(value))

    def _put(self, one: bytes | None) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for send in listeners:
            send(one)

    def _answered(self, request: Request, stretches: tuple[Stretch, ...]) -> dict[str, Any]:
        session, answer = request.spec.session, request.outcome
        told: dict[str, Any] = {
            "at": time.time(),
            "client": request.client,
            "session": session,
            "ahead": request.is_ahead_work,
        }
        if isinstance(answer, MidfillError):
            return told | {"outcome": answer.code, "message": str(answer)}
        completion = request.completion()
        usage = completion.usage
        inserted = estimate_tokens(len(self._inserted(session, request.spec.prompt)))
        return told | {
            "outcome": "completed",
            "heat": heat(usage, inserted),
            "usage": structs.asdict(usage),
            "text": completion.text,
            "prompt": list(stretches),
        }

    def _inserted(self, session: str, prompt: Prompt) -> str:
        """What was inserted before the cursor since the session's last prompt; nothing if the prefix has changed."""
        with self._lock:
            earlier = self._prompts.pop(session, prompt)
            self._prompts[session] = prompt
            if len(self._prompts) > _REMEMBERED_SESSIONS:
                del self._prompts[next(iter(self._prompts))]
        if earlier.prefix != prompt.prefix:
            return ""
        return prompt.increment[Prefix.similarity(earlier.increment, prompt.increment) :]
