"""A language server's process, as an editor runs it: starts it, exchanges JSON-RPC over its stdio, and ends it."""

from __future__ import annotations

import asyncio
import functools
import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cattrs
from lsprotocol import converters, types
from pygls.exceptions import JsonRpcException, JsonRpcRequestCancelled
from pygls.lsp.client import LanguageClient
from pygls.protocol import JsonRPCNotification, JsonRPCResponseMessage, LanguageServerProtocol

from protocol.errors import Cancelled, MidfillError

if TYPE_CHECKING:
    from pygls.io_ import AsyncWriter, Writer

_STDERR_LINES = 20
_EXIT_SECONDS = 5.0


class LanguageServerFailed(MidfillError):
    """The language server could not be started, ended on its own, or refused a request."""

    code = "language_server_failed"


@dataclass(slots=True)
class Asked:
    """A request on its way.

    Its times, of `time.perf_counter`, are taken at the pipes, so they exclude this side's work on the messages.
    """

    id: str
    method: str
    future: Future[Any]
    sent: float  # when its bytes were handed to the pipe
    answered: float | None = None  # when the bytes of its answer had arrived

    @property
    def milliseconds(self) -> float:
        """The time from the request to its answer, which must have arrived."""
        assert self.answered is not None, f"{self.method} has not been answered"
        return (self.answered - self.sent) * 1000


class _TimedWriter:
    """Records the time before each write: the reader may finish before the operating system resumes this process."""

    def __init__(self, writer: AsyncWriter | Writer) -> None:
        self._writer = writer
        self.wrote = 0.0

    def write(self, data: bytes) -> Any:
        self.wrote = time.perf_counter()
        return self._writer.write(data)

    def close(self) -> Any:
        return self._writer.close()


class _TimedProtocol(LanguageServerProtocol):
    """Records when a message leaves, and when one arrives, before it is converted."""

    writer: _TimedWriter
    came = 0.0

    def set_writer(self, writer: AsyncWriter | Writer, include_headers: bool = True) -> None:
        super().set_writer(_TimedWriter(writer), include_headers)

    def structure_message(self, data: dict[str, Any]) -> Any:
        if "jsonrpc" in data:  # pygls calls this for every object in a message, the message itself last
            self.came = time.perf_counter()
        return super().structure_message(data)


class LspProcess(LanguageClient):
    """A running language server. Error messages quote the last lines of its stderr."""

    protocol: _TimedProtocol

    def __init__(self) -> None:
        super().__init__("midfill without an editor", "1", _TimedProtocol, _make_converter)
        self._stderr: deque[str] = deque(maxlen=_STDERR_LINES)
        self._stderr_reader: asyncio.Task[None] | None = None

    async def launch(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start `command`, with `environment` over this process's own; LanguageServerFailed if it is no program.

        It gets a process group of its own, so that Ctrl-C in a terminal reaches only the caller, which then ends it.
        """
        try:
            await self.start_io(*command, env={**os.environ, **(environment or {})}, start_new_session=True)
        except OSError as error:
            raise LanguageServerFailed(f"cannot start {command[0]}: {error}") from error
        self._stderr_reader = asyncio.create_task(self._read_stderr())

    def hear(self, method: str, handler: Callable[[Any], None]) -> None:
        """Call `handler` with the parameters of every notification `method`."""
        self.feature(method)(functools.partial(handler))  # pygls sets attributes on the handler, and methods have none

    def send(self, method: str, params: object) -> None:
        """Send a notification; LanguageServerFailed if the server is gone."""
        self._check_running()
        self.protocol.notify(method, params)

    def begin(self, method: str, params: object) -> Asked:
        self._check_running()
        message_id = str(uuid.uuid4())
        future = self.protocol.send_request(method, params, msg_id=message_id)
        asked = Asked(message_id, method, future, sent=self.protocol.writer.wrote)

        def note_answer(_: Future[Any]) -> None:
            asked.answered = self.protocol.came

        future.add_done_callback(note_answer)
        return asked

    async def finish(self, asked: Asked) -> Any:
        """The answer; Cancelled if the request was, LanguageServerFailed if it was refused or the server ended."""
        answer = asyncio.wrap_future(asked.future)
        answer.add_done_callback(_notice)
        try:
            # Shielded: pygls breaks on an answer whose future was cancelled meanwhile.
            return await asyncio.shield(answer)
        except JsonRpcRequestCancelled as error:
            raise Cancelled(asked.method) from error
        except JsonRpcException as error:
            raise LanguageServerFailed(f"{asked.method} was refused: {error.message} (code {error.code})") from error
        except RuntimeError as error:  # pygls' error for pending requests when the server exits
            raise LanguageServerFailed(await self._last_words(str(error))) from error

    async def ask(self, method: str, params: object) -> Any:
        """Send a request and wait for its answer; errors as in `finish`."""
        return await self.finish(self.begin(method, params))

    async def end(self) -> None:
        """Shut the server down as LSP specifies, and kill it if it does not exit. Ending it twice is no error."""
        process = self._server
        if process is None:
            return
        try:
            async with asyncio.timeout(_EXIT_SECONDS):
                if not self.stopped:
                    await self.ask(types.SHUTDOWN, None)
                    self.send(types.EXIT, None)
                await process.wait()
        except (TimeoutError, LanguageServerFailed):
            if process.returncode is None:
                process.kill()
        if self._stderr_reader is not None:
            self._stderr_reader.cancel()  # children of the server may hold the pipe open
        await self.stop()  # type: ignore[no-untyped-call]  # pygls does not annotate it

    def _check_running(self) -> None:
        if self._server is None or self.stopped:
            raise LanguageServerFailed("the language server is not running")

    async def _last_words(self, what: str) -> str:
        """`what`, and the last lines of the dead server's stderr."""
        if self._stderr_reader is not None:
            await asyncio.wait([self._stderr_reader], timeout=_EXIT_SECONDS)
        return "\n".join([what, *(f"  {line}" for line in self._stderr)])

    async def _read_stderr(self) -> None:
        """Read stderr continuously: a server whose log fills the pipe would block."""
        if self._server is None or self._server.stderr is None:
            raise AssertionError("start_io has set both")
        async for line in self._server.stderr:
            self._stderr.append(line.decode(errors="replace").rstrip())


def _notice(answer: asyncio.Future[Any]) -> None:
    """Retrieve the error of an answer without a waiter, as after Ctrl-C; asyncio would print it otherwise."""
    if not answer.cancelled():
        answer.exception()


def _make_converter() -> cattrs.Converter:
    """LSP's own types as lsprotocol knows them, everything else as plain JSON."""
    converter = converters.get_converter()
    for message in (JsonRPCNotification, JsonRPCResponseMessage):
        converter.register_structure_hook(message, lambda fields, kind: kind(**fields))
    return converter
