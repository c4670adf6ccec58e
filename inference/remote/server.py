"""A server that runs a model: its address in the setting `engine`, its interface, and HTTP to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from inference.text.token_ids import TokenIds
from protocol.errors import BadInput, Busy, EngineUnavailable
from protocol.messages import Sampling
from protocol.settings import LOCAL_ENGINE

LLAMA_SERVER = "llama-server"
OPENAI = "openai"

EngineKind = Literal["llama-server", "openai"]


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """An engine that runs at `url`, or llama-server's `program`, to be started."""

    kind: EngineKind
    url: str = ""
    program: str = ""
    socket: str = ""  # the Unix socket through which the `url` is reached; empty for TCP

    def __str__(self) -> str:
        return f"{self.kind} at {self.socket or self.url}" if self.url else self.program

    @property
    def is_loopback(self) -> bool:
        """Whether the engine runs on this machine, where no proxy is between."""
        host = urlsplit(self.url).hostname or ""
        try:
            return host == "localhost" or ip_address(host).is_loopback
        except ValueError:
            return False


def read_engine_address(engine: str) -> EngineAddress | None:
    """The address in the setting; None for the local engine.

    `llama-server`, `llama-server=PROGRAM`, `llama-server=URL`, `openai=URL`; BadInput for anything else.
    """
    kind, _, place = engine.partition("=")
    if engine == LOCAL_ENGINE:
        return None
    if kind == LLAMA_SERVER and "://" not in place:
        return EngineAddress("llama-server", program=_program(place))
    if kind not in (LLAMA_SERVER, OPENAI):
        raise BadInput(f"engine = {engine!r}: expected local, llama-server, llama-server=PROGRAM, llama-server=URL or openai=URL")
    return EngineAddress("openai" if kind == OPENAI else "llama-server", url=_checked_url(engine, place))


def _program(place: str) -> str:
    """A path, or a name on the PATH; as it is but for a home folder, since programs look at the name they run under."""
    if place.startswith("~"):
        with suppress(RuntimeError, ValueError):  # no such user
            return str(Path(place).expanduser())
    return place or LLAMA_SERVER


def _checked_url(engine: str, url: str) -> str:
    """The URL without a final slash and without `/v1`, which the requests add."""
    if "," in url:
        raise BadInput(
            f"engine = {engine!r}: expected one URL. For several servers, put a router before them, such as "
            "vllm-router or HAProxy, and name the router's URL (docs/teams.md#several-machines)"
        )
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https") or parts.query or parts.username:
        raise BadInput(f"engine = {engine!r}: expected a URL such as http://HOST:PORT after the =")
    return url.rstrip("/").removesuffix("/v1")


EndReason = Literal["eos", "stop", "length"]


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The facts that a server reports about itself when the core connects."""

    name: str  # the server's name for its model
    model_places: tuple[str, ...]  # where the model may be found: files, folders or hub names, the likeliest first
    context_tokens: int  # longest prompt plus completion
    capacity: int  # requests at work together
    slots: int | None = None  # of llama-server; None if the server places prompts by itself
    block_tokens: int = 1  # the server keeps whole blocks only
    copy_tokens: int = 0  # before a prompt's end, where a copy of the model's recurrent states stands; 0: it has none
    can_constrain: bool = True  # whether a text's first bytes can be forced, which healing needs


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationQuery:
    """One request to a server, from token ids."""

    token_ids: TokenIds
    max_tokens: int  # 0 only makes the prompt resident
    typed: str | None = None  # the text must begin with it; "" only keeps out markers, as the longer ones do
    stops: tuple[str, ...] = ()  # the text ends before each of these
    end_ids: tuple[int, ...] = ()  # tokens that end the text besides the model's own end
    session: str  # an opaque name; prompts of one session share their beginnings
    slot: int | None = None
    reuse: bool = True  # False computes the whole prompt
    top: int = 1  # the most probable tokens to report with each token
    sampling: Sampling | None = None  # None is greedy


@dataclass(frozen=True, slots=True)
class Token:
    """A generated token; a server that reports no ids or log-probabilities leaves them None."""

    id: int | None
    logprob: float | None
    top: tuple[tuple[int, float], ...] = ()  # ids and log-probabilities, the most probable first


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the answer. Servers hold back text whose last character is incomplete, not its tokens."""

    text: str = ""
    tokens: tuple[Token, ...] = ()
    end: EndReason | None = None  # set in the last piece but one, or in the last
    cached_tokens: int | None = None  # prompt tokens that were resident, once the server has reported them
    prefilled: tuple[int, int] | None = None  # of a prompt that takes several steps: tokens resident now, and all


class ModelServer(Protocol):
    """A connection to one server. Errors are EngineUnavailable, Busy or BadInput."""

    async def facts(self) -> ServerFacts:
        """Ask for the facts, and wait while the server loads its model."""
        ...

    async def tokenize(self, text: str) -> list[int] | None:
        """The server's own tokens of a text; None if it cannot say."""
        ...

    def stream(self, query: GenerationQuery) -> AsyncGenerator[Piece]:
        """The answer as it is generated. Closing the generator closes the request and stops the server's work."""
        ...

    async def erase(self, slot: int) -> bool:
        """Drop a slot's prompt; False if the server cannot."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


CONNECT_S = 5.0
SILENCE_S = 120.0
"""Seconds without a byte after which a request fails; the prefill of a long prompt on a CPU takes most of a minute."""
MAX_ERROR_CHARS = 300

Answer = TypeVar("Answer")


class HttpConnection:
    """A pool of connections to one server; for one event loop."""

    def __init__(self, address: EngineAddress, key: str = "", check: Callable[[], None] = lambda: None) -> None:
        """`check` raises EngineUnavailable if the server has ended; nothing is sent then."""
        self.address = address
        self._check_server = check
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
        self._client = httpx2.AsyncClient(
            transport=httpx2.AsyncHTTPTransport(uds=address.socket, limits=limits) if address.socket else None,
            base_url=address.url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S),
            limits=limits,
            trust_env=not address.is_loopback,
        )
        self._close_after = {"Connection": "close"} if address.kind == "llama-server" else {}  # it does so unannounced

    async def get(self, path: str, kind: type[Answer]) -> Answer:
        """The answer to GET, as a value of `kind`."""
        return await self._answer("GET", path, kind)

    async def post(self, path: str, body: object, kind: type[Answer]) -> Answer:
        """The answer to POST with a JSON body, as a value of `kind`."""
        return await self._answer("POST", path, kind, content=msgspec.json.encode(body), headers=_JSON)

    @asynccontextmanager
    async def events(
        self, path: str, body: object, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[AsyncGenerator[bytes]]:
        """The data of the server-sent events that answer a POST; leaving the context closes the request."""
        headers = {**_JSON, **self._close_after, **(headers or {})}
        request = self._client.build_request("POST", path, content=msgspec.json.encode(body), headers=headers)
        with _named_errors(self.address):
            response = await self._send(request)
            try:
                if response.is_error:
                    await response.aread()
                    raise self._refused(response)
                yield _data_of(response)
            finally:
                await response.aclose()

    async def aclose(self) -> None:
        await self._client.aclose()

    def decode(self, data: bytes, kind: type[Answer]) -> Answer:
        """A value of `kind` from JSON; EngineUnavailable if the server sent something else."""
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EngineUnavailable(f"{self.address} sent {data[:MAX_ERROR_CHARS]!r}: {error}") from error

    async def _answer(self, method: str, path: str, kind: type[Answer], **options: Any) -> Answer:
        with _named_errors(self.address):
            response = await self._send(self._client.build_request(method, path, **options))
            await response.aread()
        if response.is_error:
            raise self._refused(response)
        return self.decode(response.content, kind)

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        """The response, up to its headers. Asks again if the server has just closed an idle connection."""
        self._check_server()
        try:
            return await self._client.send(request, stream=True)
        except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
            self._check_server()
            return await self._client.send(request, stream=True)

    def _refused(self, response: httpx2.Response) -> Exception:
        """The error for a status of 400 or more."""
        status, message = response.status_code, error_message(response.content)
        if status in (401, 403):
            return EngineUnavailable(
                f"{self.address} refuses the core's key ({status}: {message}): set engineKey (MIDFILL_ENGINE_KEY)"
            )
        if status == 429:
            return Busy(f"{self.address} takes no more requests now: {message}")
        if status in (400, 413, 422):
            return BadInput(f"{self.address} refuses the request ({status}): {message}")
        return NotServed(status, f"{self.address} answered with status {status}: {message}")


class Tokenized(msgspec.Struct, frozen=True):
    """The answer to `/tokenize`, which llama-server, vLLM and SGLang have in common."""

    tokens: list[int]


class NotServed(EngineUnavailable):
    """The server answered with an error status that says nothing about the request's content."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def error_message(content: bytes) -> str:
    """The message in an error body, of OpenAI's form or any other."""
    try:
        body: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        body = content.decode(errors="replace")
    for key in ("error", "message", "detail"):
        if isinstance(body, dict) and key in body:
            body = body[key]
    return str(body)[:MAX_ERROR_CHARS]


_JSON = {"Content-Type": "application/json"}


async def _data_of(response: httpx2.Response) -> AsyncGenerator[bytes]:
    async for event in httpx2.EventSource(response):
        if event.data and event.data != "[DONE]":
            yield event.data.encode()


@contextmanager
def _named_errors(address: EngineAddress) -> Iterator[None]:
    """Turns the HTTP client's errors into EngineUnavailable, which names the server."""
    try:
        yield
    except httpx2.TimeoutException as error:
        raise EngineUnavailable(f"{address} does not answer ({type(error).__name__})") from error
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
        raise EngineUnavailable(f"{address} cannot be reached: {str(error) or type(error).__name__}") from error
