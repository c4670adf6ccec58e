"""How messages reach the handlers: pygls' protocol without its own document mirror, lenient where clients err."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import cattrs
import msgspec
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams, JsonRpcInvalidRequest
from pygls.protocol import LanguageServerProtocol, default_converter, lsp_method

from lsp_server.custom_messages import MESSAGE_TYPES
from lsp_server.framing import parse
from lsp_server.keystroke_messages import KeystrokeMessage, decode_strictly, stand_in, structure
from lsp_server.mistakes import why_unreadable

if TYPE_CHECKING:
    from pygls.lsp.server import LanguageServer

# What pygls does not dispatch: notifications are handled at once, requests by a task each.
_OURS = (
    KeystrokeMessage,
    types.DidOpenTextDocumentNotification,
    types.DidCloseTextDocumentNotification,
    types.DidOpenNotebookDocumentNotification,
    types.DidChangeNotebookDocumentNotification,
    types.DidCloseNotebookDocumentNotification,
)


class EditorProtocol(LanguageServerProtocol):
    """Hands what is told of documents, and what comes with every key, to our handlers alone, and at once.

    pygls' mirror splits the whole text on every change, and its way to a handler takes longer than the handler.
    """

    def __init__(self, server: LanguageServer, converter: cattrs.Converter) -> None:
        super().__init__(server, converter)
        self.stopped = False
        self._initialized = False
        self._behind_answer: list[Callable[[], None]] = []

    @property
    def exit_code(self) -> int:
        """As LSP wants it: 0 if the client asked for a shutdown before it left."""
        return 0 if self._shutdown else 1

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, types.InitializeResult]:
        """As pygls does, once."""
        if self._initialized:
            raise JsonRpcInvalidRequest("initialize was sent before")
        self._initialized = True
        return (yield from super().lsp_initialize(params))

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *args: Any) -> Generator[Any, Any, None]:
        """As pygls does, also where cancelling one request ends another; at once, since `exit` may follow at once."""
        self._shutdown = True
        yield self.fm.features[types.SHUTDOWN], args, None
        for message_id, future in list(self._request_futures.items()):
            if message_id != self.msg_id:
                future.cancel()

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_: Any) -> Generator[Any, Any, None]:
        """End this connection; ending the process is for whoever runs it."""
        self.stopped = True
        yield from ()

    def get_message_type(self, method: str) -> type[Any] | None:  # type: ignore[override]  # pygls' has a cache
        return MESSAGE_TYPES.get(method) or super().get_message_type(method)

    def receive(self, body: bytes) -> bool:
        """Handle the message in this body; a JsonRpcException where there is none that can be read.

        Returns whether it is handled: the handler of any other may begin no earlier than in the next turn of the loop.
        """
        message = decode_strictly(body) or self.structure_message(parse(body))
        self.handle_message(message)
        return isinstance(message, _OURS) and getattr(message, "id", None) is None

    def tell(self, method: str, params: object) -> None:
        """Send one of midfill's own notifications, which are plain JSON and need no converter."""
        self._send_data({"jsonrpc": self.VERSION, "method": method, "params": params})

    def after_answer(self, tell: Callable[[], None]) -> None:
        """Call `tell` as soon as the next answer has left, whoever gets it, so that nobody waits for what is told."""
        self._behind_answer.append(tell)

    def _send_response(self, msg_id: Any, result: Any = None, error: types.ResponseError | None = None) -> None:
        if isinstance(result, msgspec.Struct):
            self._send_data({"jsonrpc": self.VERSION, "id": msg_id, "result": result})
        else:
            super()._send_response(msg_id, result, error)
        behind, self._behind_answer = self._behind_answer, []
        for tell in behind:
            tell()

    def _send_data(self, data: Any) -> None:
        """As pygls does, but with little code on the way from a message to its bytes, since somebody waits for them."""
        if self.writer is None:  # pygls says so
            super()._send_data(data)
            return
        plain = data if isinstance(data, dict) else self._converter.unstructure(data)
        try:
            body = msgspec.json.encode(plain)
        except UnicodeEncodeError:  # a lone surrogate, which JSON can escape
            body = json.dumps(msgspec.to_builtins(plain)).encode()
        self.writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))

    def handle_message(self, message: Any) -> None:
        """As pygls does, but for those; requests after the shutdown are refused, not left without an answer."""
        if self._shutdown and getattr(message, "id", None) is not None and hasattr(message, "method"):
            refusal = JsonRpcInvalidRequest(f"{message.method}: the server is shut down")
            self._send_response(message.id, error=refusal.to_response_error())
        elif not isinstance(message, _OURS):
            super().handle_message(message)
        elif isinstance(message, KeystrokeMessage) and message.id is not None:
            answering = asyncio.create_task(self._answer(message.id, message))
            self._request_futures[message.id] = answering  # type: ignore[assignment]  # as pygls does
        elif not self._shutdown:
            self.fm.features[message.method](message.params)

    async def _answer(self, message_id: int | str, request: KeystrokeMessage) -> None:
        """As pygls does, but in the turn of the event loop in which the answer is there."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            answer.set_result(await self._get_handler(request.method)(request.params))
        except asyncio.CancelledError:
            answer.cancel()
        except Exception as error:  # noqa: BLE001  # pygls answers with it, and logs it
            answer.set_exception(error)
        self._send_handler_result(answer, msg_id=message_id)  # type: ignore[arg-type]  # as pygls does

    def structure_message(self, data: dict[str, Any]) -> Any:
        """As pygls does, but what cannot be read is named, and a request answered with that, not with silence.

        Of a change, its handler is told: the mirror has lost step.
        """
        if "method" in data:
            data = {"params": None, **data}  # may be left out
        try:
            return ("method" in data and structure(data)) or super().structure_message(data)
        except (msgspec.ValidationError, JsonRpcException) as error:
            refusal = JsonRpcInvalidParams(why_unreadable(data, error.__cause__ or error))
            if (unreadable := stand_in(data, str(refusal))) is not None:
                return unreadable
            if "id" in data and "method" in data:
                self._send_response(data["id"], error=refusal.to_response_error())
            raise refusal from error


@functools.cache
def make_converter() -> cattrs.Converter:
    """The converter of LSP messages, made once: what it works out about LSP's types serves every connection."""
    return default_converter()  # type: ignore[no-any-return, no-untyped-call]
