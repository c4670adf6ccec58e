"""Converts WebSocket messages to and from JSON text, with errors that name the offending field.

A connection is one WebSocket on `/ws`, opened with `Authorization: Bearer TOKEN`. The client sends `Complete`,
`Cancel`, `Forget`, `Release`, `Unload`, `Describe`, `Free` and `Stop`. The core sends `StatusChanged` first and on
every change, one `Completed` or `Failed` per `Complete`, in the order in which they finish, `Prefilled` before it where
the prompt takes long, `Described` or `Failed` per `Describe` and `Free`, and `Kept` for a `Stop` that it refuses.
"""

from __future__ import annotations

import json
from typing import Any, Literal, TypeVar

import msgspec

from protocol.errors import BadInput
from protocol.messages import Completion, CompletionRequest, CoreMemory, CoreStatus, SessionName, Value

_Message = TypeVar("_Message")

StopHow = Literal["stop", "restart", "replace"]


class Complete(Value, frozen=True, tag=True):
    """Client to core: compute this completion; `id` is unique in the connection."""

    id: int
    request: CompletionRequest


class Cancel(Value, frozen=True, tag=True):
    """Client to core: the answer to `id` is no longer wanted."""

    id: int


class Forget(Value, frozen=True, tag=True):
    """Client to core: drop the text of the session's document, which is excluded, from memory and from disk.

    A session is named `client/document`; the document's text from all clients is dropped, including past runs.
    """

    session: SessionName


class Release(Value, frozen=True, tag=True):
    """Client to core: the session's document was closed; the store may evict its KV by the ordinary rules."""

    session: SessionName


class Unload(Value, frozen=True, tag=True):
    """Client to core: unload the model; the next request loads it again."""


class Describe(Value, frozen=True, tag=True):
    """Client to core: report the memory in use; `id` as in `Complete`."""

    id: int


class Free(Value, frozen=True, tag=True):
    """Client to core: drop all resident KV from memory, and with `disk` what is saved of it; the model stays loaded.

    Without `disk`, the core saves it first. The answer comes when no request is at work and the memory is free.
    """

    id: int
    disk: bool = False


class Stop(Value, frozen=True, tag=True):
    """Client to core: exit.

    `stop`: the other clients receive the state `stopped` and start no other core. `restart`: they find or start the
    next one. `replace`: as `restart`, once every connected client has requested it, or if the model has failed. A core
    that was started by hand obeys only `stop`, unless its model has failed.
    """

    how: StopHow


class Kept(Value, frozen=True, tag=True):
    """Core to client: the reason why the core does not exit, or not yet."""

    reason: str


class Prefilled(Value, frozen=True, tag=True):
    """Core to client: so many tokens of the prompt of `id` are resident, of so many; sent if that takes a while."""

    id: int
    tokens: int
    of: int


class Completed(Value, frozen=True, tag=True):
    """Core to client: the answer to `id`."""

    id: int
    completion: Completion


class Described(Value, frozen=True, tag=True):
    """Core to client: the answer to the `Describe` or `Free` of this `id`."""

    id: int
    memory: CoreMemory


class Failed(Value, frozen=True, tag=True):
    """Core to client: `id` has no answer; `code` is that of the error class in `protocol.errors`.

    `id` is None if the core could not read it.
    """

    id: int | None
    code: str
    message: str


class StatusChanged(Value, frozen=True, tag=True):
    """Core to client: the core's current status."""

    status: CoreStatus
    protocol_version: int


ClientMessage = Complete | Cancel | Forget | Release | Unload | Describe | Free | Stop
CoreMessage = Completed | Described | Failed | StatusChanged | Kept | Prefilled


class Envelope(msgspec.Struct, frozen=True):
    """The readable part of a message from another version."""

    id: int | None = None
    protocol_version: int | None = None


_encoder = msgspec.json.Encoder()
_from_clients: msgspec.json.Decoder[ClientMessage] = msgspec.json.Decoder(ClientMessage)
_from_cores: msgspec.json.Decoder[CoreMessage] = msgspec.json.Decoder(CoreMessage)
_envelopes = msgspec.json.Decoder(Envelope)


def encode(message: ClientMessage | CoreMessage) -> str:
    """The JSON text of one message; lone surrogates, which editors may send, become U+FFFD."""
    try:
        return _encoder.encode(message).decode()
    except UnicodeEncodeError:
        return _without_lone_surrogates(msgspec.to_builtins(message))


def decode_object(text: bytes) -> dict[str, Any]:
    """The JSON object in `text`; lone surrogates in its texts become U+FFFD, as in what language servers send.

    Raises msgspec.ValidationError if it is another value, and msgspec.DecodeError, UnicodeDecodeError or RecursionError
    if it is none.
    """
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.ValidationError as error:
        raise _with_field(text, error) from None
    except msgspec.DecodeError as error:
        try:
            mended = _without_lone_surrogates(json.loads(text.decode()))
        except ValueError:
            raise error from None  # that was not what is wrong with it
        return msgspec.json.decode(mended, type=dict[str, Any])


def _with_field(text: bytes, error: msgspec.ValidationError) -> msgspec.ValidationError:
    """The error with the name of its field, which msgspec does not tell where any value is allowed."""
    try:
        fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return error
    for name, value in fields.items():
        try:
            msgspec.json.decode(value)
        except msgspec.ValidationError as fault:
            return msgspec.ValidationError(f"{fault} - at `$.{name}`")
    return error


def _without_lone_surrogates(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def decode_client(text: str) -> ClientMessage:
    """The message in `text`; BadInput, with the field at fault, if it is not one."""
    return _decoded(text, _from_clients)


def decode_core(text: str | bytes) -> CoreMessage:
    """The message in `text`; BadInput, with the field at fault, if it is not one."""
    return _decoded(text, _from_cores)


def read_envelope(text: str | bytes) -> Envelope:
    """The request id and protocol of an unreadable message, as far as they are readable."""
    try:
        return _envelopes.decode(text)
    except (ValueError, RecursionError):
        return Envelope()


def _decoded(text: str | bytes, decoder: msgspec.json.Decoder[_Message]) -> _Message:
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not a midfill message: {error}: {text[:200]!r}") from error
