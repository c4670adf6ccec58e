"""HTTP to a server: JSON requests, event streams, and errors that name the server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import httpx2
import msgspec

from inference.remote.servers.address import EngineAddress
from protocol.errors import BadInput, Busy, EngineUnavailable

CONNECT_S = 5.0
SILENCE_S = 120.0
"""Seconds without a byte after which a request fails; the prefill of a long prompt on a CPU takes most of a minute."""
MAX_ERROR_CHARS = 300

Answer = TypeVar("Answer")


class HttpConnection:
    """A pool of connections to one server; for one event loop."""

    def __init__(self, address: EngineAddress, key: str = "") -> None:
        self.address = address
        self._client = httpx2.AsyncClient(
            base_url=address.url,
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=httpx2.Timeout(SILENCE_S, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=64),
            trust_env=not address.is_loopback,
        )
        self._close_after = {"Connection": "close"} if address.kind == "llama-server" else {}  # it does so unannounced

    async def get(self, path: str, kind: type[Answer]) -> Answer:
        """The answer to GET, as a value of `kind`."""
        return self.decode(self._check(await self._answer("GET", path)).content, kind)

    async def text(self, path: str) -> str:
        """The answer to GET, as text."""
        return self._check(await self._answer("GET", path)).text

    async def post(self, path: str, body: object, kind: type[Answer]) -> Answer:
        """The answer to POST with a JSON body, as a value of `kind`."""
        answer = await self._answer("POST", path, content=msgspec.json.encode(body), headers=_JSON)
        return self.decode(self._check(answer).content, kind)

    @asynccontextmanager
    async def events(
        self, path: str, body: object, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator[AsyncGenerator[bytes]]:
        """The data of the server-sent events that answer a POST; leaving the context closes the request."""
        headers = {**_JSON, **self._close_after, **(headers or {})}
        request = self._client.build_request("POST", path, content=msgspec.json.encode(body), headers=headers)
        with _told(self.address):
            response = await self._send(request)
            try:
                if response.is_error:
                    await response.aread()
                self._check(response)
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

    async def _answer(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """The whole response, with any status."""
        with _told(self.address):
            response = await self._send(self._client.build_request(method, path, **options))
            await response.aread()
        return response

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        """The response, up to its headers. Asks again if the server has just closed an idle connection."""
        try:
            return await self._client.send(request, stream=True)
        except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
            return await self._client.send(request, stream=True)

    def _check(self, response: httpx2.Response) -> httpx2.Response:
        if response.is_error:
            raise self._refused(response)
        return response

    def _refused(self, response: httpx2.Response) -> Exception:
        """The error for a status of 400 or more."""
        status, told = response.status_code, error_message(response.content)
        if status in (401, 403):
            return EngineUnavailable(
                f"{self.address} refuses the core's key ({status}: {told}): set engineKey (MIDFILL_ENGINE_KEY)"
            )
        if status == 429:
            return Busy(f"{self.address} takes no more requests now: {told}")
        if status in (400, 413, 422):
            return BadInput(f"{self.address} refuses the request ({status}): {told}")
        return NotServed(status, f"{self.address} answered with status {status}: {told}")


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
def _told(address: EngineAddress) -> Iterator[None]:
    """Turns the HTTP client's errors into EngineUnavailable, which names the server."""
    try:
        yield
    except httpx2.TimeoutException as error:
        raise EngineUnavailable(f"{address} does not answer ({type(error).__name__})") from error
    except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL) as error:
        raise EngineUnavailable(f"{address} cannot be reached: {error or type(error).__name__}") from error
