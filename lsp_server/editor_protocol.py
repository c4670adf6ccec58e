"""pygls' protocol for one editor: without pygls' mirror of documents, and with LSP's rules about `initialize`."""

from __future__ import annotations

import functools
import logging
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import cattrs
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidRequest, JsonRpcServerNotInitialized
from pygls.protocol import JsonRPCRequestMessage, LanguageServerProtocol, default_converter, lsp_method

from lsp_server.custom_messages import MESSAGE_TYPES

if TYPE_CHECKING:
    from pygls.lsp.server import LanguageServer

logger = logging.getLogger(__name__)

_REFUSED = "midfill/refused"  # the method that answers a refused request; its parameter is the error
_MIRRORED = (
    types.TEXT_DOCUMENT_DID_OPEN,
    types.TEXT_DOCUMENT_DID_CHANGE,
    types.TEXT_DOCUMENT_DID_CLOSE,
    types.NOTEBOOK_DOCUMENT_DID_OPEN,
    types.NOTEBOOK_DOCUMENT_DID_CHANGE,
    types.NOTEBOOK_DOCUMENT_DID_CLOSE,
)


class EditorProtocol(LanguageServerProtocol):
    """Refuses every request before `initialize`, and a second `initialize`."""

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
            if not isinstance(data.get("id", 0), str | int):
                raise JsonRpcInvalidRequest(f"the id {data['id']!r:.100} is neither a string nor an integer")
            data = {"params": None, **data}  # JSON-RPC lets clients omit the parameters
        return super().structure_message(data)

    def handle_message(self, message: Any) -> None:
        method = getattr(message, "method", None)
        initializing = method == types.INITIALIZE
        if initializing != self._initialized or method == types.EXIT:
            self._initialized = self._initialized or initializing
            super().handle_message(message)
        elif not hasattr(message, "id"):
            logger.warning("from the client: %s before initialize", method)
        elif initializing:
            self.refuse(message.id, JsonRpcInvalidRequest("initialize was already sent"))
        else:
            self.refuse(message.id, JsonRpcServerNotInitialized(f"{method} before initialize"))

    def refuse(self, message_id: str | int | None, error: JsonRpcException) -> None:
        """Answer a request with `error`; the id is None if it could not be read."""
        super().handle_message(JsonRPCRequestMessage(message_id, _REFUSED, self.VERSION, error))  # type: ignore[arg-type]

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *args: Any) -> Generator[Any, Any, None]:
        """As in pygls, which fails if a request that it cancels leaves its table at once, as commands do."""
        for message_id, future in list(self._request_futures.items()):
            if message_id != self.msg_id:
                future.cancel()
        yield from super().lsp_shutdown(*args)

    @lsp_method(_REFUSED)
    def raise_refusal(self, error: JsonRpcException) -> None:
        """The handler that pygls calls for a refused request."""
        raise error


@functools.cache
def make_converter() -> cattrs.Converter:
    """The converter of LSP messages. It is made once: the code that it generates serves every connection."""
    converter: cattrs.Converter = default_converter()  # type: ignore[no-untyped-call]
    converter.register_structure_hook(str, _text)
    converter.register_structure_hook(types.InlineCompletionTriggerKind, _trigger_kind)
    return converter


def _text(value: object, _: object) -> str:
    """Refuse null as text; cattrs would convert it to "None"."""
    if not isinstance(value, str):
        raise TypeError(f"expected a string, not {value!r:.100}")
    return value


def _trigger_kind(value: object, _: object) -> types.InlineCompletionTriggerKind:
    """Some clients count the trigger kinds from 0."""
    invoked = types.InlineCompletionTriggerKind.Invoked
    return invoked if value == invoked else types.InlineCompletionTriggerKind.Automatic
