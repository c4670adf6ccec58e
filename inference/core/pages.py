"""Web pages of the core: their files, the keys that open them, and the dashboard with its stream of events."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from msgspec import structs
from rapidfuzz.distance import Prefix
from starlette.requests import Request as HttpRequest
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from inference.core.http.responses import EVENTS, error_response, event
from inference.core.scheduler import Scheduler, Snapshot
from inference.engine.request import Request
from inference.text.prompts import PromptSpan
from protocol.errors import MidfillError
from protocol.messages import CoreStatus, Prompt, cache_outcome, estimate_tokens

STATIC_PATH = "/pages/static"
BUILT = Path(__file__).with_name("static")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_NOT_BUILT = "The web pages are not built. In midfill's checkout run `make pages`, which needs npm; then load this page again.\n"


class _Files(StaticFiles):
    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(HEADERS)
        return response


def page_routes(name: str, built: Path = BUILT) -> Sequence[BaseRoute]:
    """The page `/NAME`, and the files of all pages; needs no key, since they are in the repository."""

    async def page(_request: HttpRequest) -> Response:
        file = built / f"{name}.html"
        if not file.is_file():
            return PlainTextResponse(_NOT_BUILT, 503, HEADERS)
        return FileResponse(file, headers=HEADERS)

    return [Route(f"/{name}", page), Mount(STATIC_PATH, _Files(directory=built, check_dir=False))]


CODE_S = 120.0
"""Seconds within which a code must be used."""


class PageKeys:
    """One key, as long as this process runs, and codes that are each exchanged for it once.

    A link that a program opens in a browser carries a code, since other users of the machine may see its command line.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.key = secrets.token_urlsafe(32)
        self._now = now
        self._codes: dict[str, float] = {}  # with the time until which each is valid

    def new_code(self) -> str:
        self._codes = {code: until for code, until in self._codes.items() if until > self._now()}
        code = secrets.token_urlsafe(32)
        self._codes[code] = self._now() + CODE_S
        return code

    def admits(self, shown: str) -> bool:
        return secrets.compare_digest(shown.encode(), self.key.encode())

    def exchange(self, shown: str) -> str | None:
        """The key for the key itself or a valid code, which is then used up; None for anything else."""
        return self.key if self.admits(shown) or self._codes.pop(shown, 0.0) > self._now() else None


MOST_UNREAD = 256
"""Events that a listener may leave unread; one that leaves more is disconnected."""
_REMEMBERED_SESSIONS = 256


class Feed:
    """Implements `Watch` for any number of listeners. `see` and `report` may be called from any thread."""

    def __init__(self) -> None:
        self.built = 0
        """Number of events built so far."""
        self._lock = threading.Lock()
        self._listeners: list[Callable[[bytes | None], None]] = []
        self.prompts: dict[str, Prompt] = {}
        """The last prompt of each session; the latest last."""
        self._forgot_at = 0.0  # requests before it leave nothing here
        self._process = psutil.Process()

    @property
    def wanted(self) -> bool:
        return bool(self._listeners)

    def see(self, snapshot: Snapshot) -> None:
        stats, answered = snapshot.stats, snapshot.answered
        self._send(
            {
                "event": "snapshot",
                "waiting": snapshot.waiting,
                "at_work": snapshot.at_work,
                "process_bytes": self._process.memory_info().rss,
                "tiers": [] if stats is None else list(stats.tiers),
                "evicted_tokens": 0 if stats is None else stats.evicted_tokens,
                "residents": list(snapshot.residents),
                "answered": None if answered is None else self._answered(answered, snapshot.prompt_spans),
            }
        )

    def forget(self) -> None:
        """Drop the sessions' last prompts, also of the requests until now; the next ones count as inserting nothing."""
        with self._lock:
            self._forgot_at = time.perf_counter()
            self.prompts.clear()

    def report(self, status: CoreStatus) -> None:
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
                    self.prompts.clear()

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

    def _answered(self, request: Request, prompt_spans: tuple[PromptSpan, ...]) -> dict[str, Any]:
        session, answer = request.spec.session, request.outcome
        event: dict[str, Any] = {
            "at": time.time(),
            "client": request.client,
            "session": session,
            "is_prefetch": request.is_prefetch,
        }
        if isinstance(answer, MidfillError):
            return event | {"outcome": answer.code, "message": str(answer)}
        completion = request.completion()
        usage = completion.usage
        inserted = estimate_tokens(len(self._inserted(request)))
        return event | {
            "outcome": "completed",
            "cache_outcome": cache_outcome(usage, inserted),
            "usage": structs.asdict(usage),
            "text": completion.text,
            "prompt": list(prompt_spans),
        }

    def _inserted(self, request: Request) -> str:
        """The text inserted before the cursor since the session's last prompt; nothing if the prefix has changed."""
        session, prompt = request.spec.session, request.spec.prompt
        with self._lock:
            if request.submitted < self._forgot_at:
                return ""
            earlier = self.prompts.pop(session, prompt)
            self.prompts[session] = prompt
            if len(self.prompts) > _REMEMBERED_SESSIONS:
                del self.prompts[next(iter(self.prompts))]
        if earlier.prefix != prompt.prefix:
            return ""
        return prompt.increment[Prefix.similarity(earlier.increment, prompt.increment) :]


LINK_PATH = "/dashboard/link"
EVENTS_PATH = "/dashboard/events"
KEY_PATH = "/pages/key"
Address = tuple[object, object]


class Dashboard:
    """The routes. A listener is no client: it keeps neither the model loaded nor the core running."""

    def __init__(self, scheduler: Scheduler, feed: Feed, keys: PageKeys, abort: Callable[[Address], None]) -> None:
        """`abort` ends the connection from and to these hosts and ports at once."""
        self._scheduler = scheduler
        self._feed = feed
        self._keys = keys
        self._abort = abort

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """The page, its files, and what its script requests."""
        return [
            *page_routes("dashboard"),
            key_route(self._keys),
            Route(LINK_PATH, self.link, methods=["POST"]),
            Route(EVENTS_PATH, self.events),
        ]

    async def link(self, _request: HttpRequest) -> Response:
        """The key of the page, and a code for one use, to whoever has the core's token."""
        return JSONResponse({"key": self._keys.key, "code": self._keys.new_code()})

    async def events(self, request: HttpRequest) -> Response:
        """The status now and at every change; what is resident, now and after every answer."""
        drop = partial(self._abort, (request.scope["client"], request.scope["server"]))

        async def pieces() -> AsyncGenerator[bytes]:
            async with aclosing(self._feed.listen(self._scheduler.status, drop)) as listening:
                yield await anext(listening)
                self._scheduler.look()
                async for one in listening:
                    yield one

        return StreamingResponse(pieces(), media_type=EVENTS, headers={"Cache-Control": "no-store"})


def key_route(keys: PageKeys) -> Route:
    """Exchanges what a link carries, sent as the bearer, for the key of the pages."""

    async def exchange(request: HttpRequest) -> Response:
        key = keys.exchange(bearer_of(request.headers.get("authorization", "")))
        if key is None:
            return error_response(401, "this link was used before, or is too old: open the page by a new one")
        return JSONResponse({"key": key}, headers={"Cache-Control": "no-store"})

    return Route(KEY_PATH, exchange)


def bearer_of(header: str) -> str:
    """The token of an Authorization header; empty if it has none."""
    scheme, _, token = header.partition(" ")
    return token if scheme == "Bearer" else ""
