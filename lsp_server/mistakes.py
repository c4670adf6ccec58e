"""Tells clients' mistakes, which get one line of the log, from bugs of the server, which get a traceback."""

from __future__ import annotations

import functools
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import cattrs
from lsprotocol import types
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcMethodNotFound,
    JsonRpcParseError,
)

from protocol.errors import BadInput

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
