"""pygls' protocol for one editor: without its mirror of documents; clients' mistakes are told from bugs."""

from __future__ import annotations

import functools
import json
import logging
import sys
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

import cattrs
from lsprotocol import types
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcMethodNotFound,
    JsonRpcParseError,
    JsonRpcServerNotInitialized,
)
from pygls.protocol import JsonRPCNotification, LanguageServerProtocol, default_converter, lsp_method

from lsp_server.custom_messages import MESSAGE_TYPES
from protocol.errors import BadInput

if TYPE_CHECKING:
    from pygls.lsp.server import LanguageServer


logger = logging.getLogger(__name__)

S = TypeVar("S")
P = TypeVar("P")
R = TypeVar("R")

_SHOWN_CHARACTERS = 200
_MISTAKES = (BadInput, JsonRpcInvalidParams, JsonRpcInvalidRequest, JsonRpcMethodNotFound, JsonRpcParseError)


class RequestFailed(JsonRpcException):
    """A valid request cannot be carried out; the message is for the user."""

    CODE = types.LSPErrorCodes.RequestFailed


def refusing_bad_input(handler: Callable[[S, P], Awaitable[R]]) -> Callable[[S, P], Awaitable[R]]:
    """Wrap a request handler: its BadInput becomes an answer of invalid parameters, with the message."""

    @functools.wraps(handler)
    async def refusing(ls: S, params: P) -> R:
        try:
            return await handler(ls, params)
        except BadInput as error:
            raise JsonRpcInvalidParams(str(error)) from error

    return refusing


def log_error(error: Exception, source: type[Exception]) -> None:
    """Log an error in a message's handling; pygls calls this in the `except` block, and may have wrapped the error."""
    cause = sys.exception() or error
    if isinstance(cause, _MISTAKES):
        logger.warning("message from the client: %s", cause)
    elif isinstance(cause, RequestFailed):
        logger.warning("a request failed: %s", cause)
    else:
        logger.error("%s: %s", source.__name__, cause, exc_info=cause)


def why_unreadable(message: dict[str, object], cause: BaseException) -> str:
    """The fault of a message that does not have the form of its method, with the offending value."""
    known = isinstance(cause, cattrs.BaseValidationError)
    reasons = "; ".join(cattrs.transform_error(cause)) if known else repr(cause)
    return f"{message.get('method', 'an answer')}: {reasons}: {shorten(json.dumps(message.get('params')))}"


def shorten(text: str) -> str:
    """The beginning of a text that may be of any length."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


_MIRRORED = (
    types.TEXT_DOCUMENT_DID_OPEN,
    types.TEXT_DOCUMENT_DID_CHANGE,
    types.TEXT_DOCUMENT_DID_CLOSE,
    types.NOTEBOOK_DOCUMENT_DID_OPEN,
    types.NOTEBOOK_DOCUMENT_DID_CHANGE,
    types.NOTEBOOK_DOCUMENT_DID_CLOSE,
)


class EditorProtocol(LanguageServerProtocol):
    """Refuses every request before `initialize` and after `shutdown`, and a second `initialize`."""

    def __init__(self, server: LanguageServer, converter: cattrs.Converter) -> None:
        super().__init__(server, converter)
        self._initialized = False
        for method in _MIRRORED:
            del self.fm.builtin_features[method]  # pygls' mirror splits the whole text on every change

    def get_message_type(self, method: str) -> type[Any] | None:  # type: ignore[override]  # pygls' has a cache
        return MESSAGE_TYPES.get(method) or super().get_message_type(method)

    def structure_message(self, data: object) -> Any:
        if not isinstance(data, dict) or data.get("jsonrpc") != self.VERSION:
            raise JsonRpcInvalidRequest("not a JSON-RPC 2.0 message")
        if "method" in data:
            if not isinstance(data["method"], str):
                raise JsonRpcInvalidRequest(f"the method {data['method']!r:.100} is not a string")
            if not isinstance(data.get("id", 0), str | int):
                raise JsonRpcInvalidRequest(f"the id {data['id']!r:.100} is neither a string nor an integer")
            data = {"params": None, **data}  # JSON-RPC lets clients omit the parameters
            if data["method"] == types.WORKSPACE_EXECUTE_COMMAND:
                if isinstance(data["params"], dict) and data["params"].get("arguments") is None:
                    data["params"] = {**data["params"], "arguments": []}  # pygls does not count those that are omitted
                if "id" not in data:
                    return self._told_command(data["params"])
        return super().structure_message(data)

    def _told_command(self, params: object) -> JsonRPCNotification:
        """A command without an id, as copilot.el sends them: it is run, and not answered."""
        try:
            structured = self._converter.structure(params, types.ExecuteCommandParams)
        except cattrs.BaseValidationError as error:
            raise JsonRpcInvalidParams from error
        return JsonRPCNotification(types.WORKSPACE_EXECUTE_COMMAND, self.VERSION, structured)

    def handle_message(self, message: Any) -> None:
        method = getattr(message, "method", None)
        initializing = method == types.INITIALIZE
        if self._shutdown and method is not None and method != types.EXIT:
            if hasattr(message, "id"):
                self.refuse(message.id, JsonRpcInvalidRequest(f"{method} after shutdown"))
        elif initializing != self._initialized or method == types.EXIT:
            self._initialized = self._initialized or initializing
            super().handle_message(message)
        elif not hasattr(message, "id"):
            logger.warning("from the client: %s before initialize", method)
        elif initializing:
            self.refuse(message.id, JsonRpcInvalidRequest("initialize was already sent"))
        else:
            self.refuse(message.id, JsonRpcServerNotInitialized(f"{method} before initialize"))

    def refuse(self, message_id: str | int | None, error: JsonRpcException) -> None:
        """Answer a request with `error`, and log it; the id is None if it could not be read."""
        logger.warning("message from the client: %s", error)
        self._send_response(message_id, error=error.to_response_error())  # type: ignore[arg-type]

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *args: Any) -> Generator[Any, Any, None]:
        """As in pygls, which fails if a request that it cancels leaves its table at once, as commands do."""
        for message_id, future in list(self._request_futures.items()):
            if message_id != self.msg_id:
                future.cancel()
        yield from super().lsp_shutdown(*args)


@functools.cache
def make_converter() -> cattrs.Converter:
    """The converter of LSP messages. It is made once: the code that it generates serves every connection."""
    converter: cattrs.Converter = default_converter()  # type: ignore[no-untyped-call]
    converter.register_structure_hook(str, _text)
    converter.register_structure_hook(types.ProgressToken, _token)
    converter.register_structure_hook(types.InlineCompletionTriggerKind, _trigger_kind)
    return converter


def _text(value: object, _: object) -> str:
    """Refuse null as text; cattrs would convert it to "None"."""
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {value!r:.100}")
    return value


def _token(value: object, _: object) -> str | int:
    """Refuse what is neither text nor a number as a token; lsprotocol would let anything pass."""
    if not isinstance(value, str | int):
        raise TypeError(f"expected a string or an integer, not {value!r:.100}")
    return value


def _trigger_kind(value: object, _: object) -> types.InlineCompletionTriggerKind:
    """Some clients count the trigger kinds from 0."""
    invoked = types.InlineCompletionTriggerKind.Invoked
    return invoked if value == invoked else types.InlineCompletionTriggerKind.Automatic
