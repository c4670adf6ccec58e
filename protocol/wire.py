"""The WebSocket messages: their frames, to and from JSON text, with errors that name the offending field.

A connection is one WebSocket on `/ws`, opened with `Authorization: Bearer TOKEN`. The client sends `Complete`,
`Cancel` and `Forget`; the core sends `StatusChanged` first and on every change, and exactly one `Completed`
or `Failed` per `Complete`, in whatever order they finish.
"""

from __future__ import annotations

from dataclasses import dataclass

import cattrs
from cattrs.preconf.json import make_converter
from cattrs.strategies import configure_tagged_union

from protocol.errors import BadInput
from protocol.messages import Completion, CompletionRequest, CoreStatus
from protocol.strict import refuse_conversions


@dataclass(frozen=True, slots=True)
class Complete:
    """Client to core: compute this; `id` is unique in the connection."""

    id: int
    request: CompletionRequest


@dataclass(frozen=True, slots=True)
class Cancel:
    """Client to core: the answer to `id` is no longer wanted."""

    id: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Client to core: drop everything resident that only this session used (a closed document).

    `*/document` stands for the document's sessions of all clients, past ones included (an excluded document).
    """

    session: str


@dataclass(frozen=True, slots=True)
class Completed:
    """Core to client: the answer to `id`."""

    id: int
    completion: Completion


@dataclass(frozen=True, slots=True)
class Failed:
    """Core to client: `id` has no answer; `code` is that of the error class in `protocol.errors`.

    `id` is None where the core could not read the message at all.
    """

    id: int | None
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class StatusChanged:
    """Core to client: what the core is doing now."""

    status: CoreStatus
    protocol_version: int


ClientMessage = Complete | Cancel | Forget
CoreMessage = Completed | Failed | StatusChanged


def _make_converter(union: object) -> cattrs.Converter:
    converter = make_converter(forbid_extra_keys=True, omit_if_default=True)
    refuse_conversions(converter)
    configure_tagged_union(union, converter, tag_name="type")
    return converter


_client_converter = _make_converter(ClientMessage)
_core_converter = _make_converter(CoreMessage)


def encode_client(message: ClientMessage) -> str:
    """The JSON text of one message to the core."""
    text: str = _client_converter.dumps(message, unstructure_as=ClientMessage)  # type: ignore[attr-defined]
    return text


def encode_core(message: CoreMessage) -> str:
    """The JSON text of one message to the client."""
    text: str = _core_converter.dumps(message, unstructure_as=CoreMessage)  # type: ignore[attr-defined]
    return text


def decode_client(text: str) -> ClientMessage:
    """The message in `text`; BadInput, with the fields at fault, if it is not one."""
    return _decode(_client_converter, text, ClientMessage)  # type: ignore[return-value]


def decode_core(text: str) -> CoreMessage:
    """The message in `text`; BadInput, with the fields at fault, if it is not one."""
    return _decode(_core_converter, text, CoreMessage)  # type: ignore[return-value]


def _decode(converter: cattrs.Converter, text: str, union: object) -> object:
    try:
        return converter.loads(text, union)  # type: ignore[attr-defined]
    except cattrs.BaseValidationError as error:
        raise BadInput(f"not a midfill message: {'; '.join(cattrs.transform_error(error))}: {text[:200]!r}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(f"not a midfill message ({error!r}): {text[:200]!r}") from error
