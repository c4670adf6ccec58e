"""Bodies of requests: reads JSON into a struct, logs the fields that it has no use for, and converts line ends to \\n."""

from __future__ import annotations

import logging
import random
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request

from protocol.messages import MAX_STOP_CHARS, MAX_STOP_TEXTS, Completion, Sampling
from protocol.wire import decode_object


def line_end_of(before: str, after: str = "") -> str:
    """The line end of the text around a cursor: that of the cursor's line, else the last one before it, else \\n."""
    for text, place in ((after, after.find("\n")), (before, before.rfind("\n"))):
        if place >= 0:
            return "\r\n" if text[max(0, place - 1)] == "\r" else "\n"
    return "\n"


def inward(text: str) -> str:
    """A client's text with \\n for \\r\\n."""
    return text.replace("\r\n", "\n") if "\r" in text else text


def outward(text: str, line_end: str) -> str:
    """The model's text with the client's line ends; what a text begins with, its conversion begins with too."""
    return text if line_end == "\n" else inward(text).replace("\n", line_end)


def completed(completion: Completion, line_end: str) -> Completion:
    """The completion with the client's line ends in its text and its alternatives."""
    if line_end == "\n":
        return completion
    others = tuple(replace(other, text=outward(other.text, line_end)) for other in completion.alternatives)
    return replace(completion, text=outward(completion.text, line_end), alternatives=others)


MAX_BODY_BYTES = 16 * 2**20
MOST_READ_BYTES = 8 * MAX_BODY_BYTES
"""Of a body that is too large, since many clients read no answer before they have sent all of it."""
DEFAULT_MAX_TOKENS = 128
MAX_CHOICES = 16
MAX_NAME_CHARS = 200
MAX_NAMED_CLIENTS = 1024
UNSERVED = frozenset({"echo", "format", "grammar", "images", "json_schema", "logit_bias", "logprobs", "system", "template"})
"""Fields that ask for another text, or for more than the text: refused unless they are empty."""

Body = TypeVar("Body")
Count = Annotated[int, msgspec.Meta(ge=-1)]  # -1 is llama.cpp's "no limit"
Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARS)]
Temperature = Annotated[float, msgspec.Meta(ge=0, le=100)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
StopOrNone = Annotated[str, msgspec.Meta(max_length=MAX_STOP_CHARS)]

log = logging.getLogger(__name__)


class Fields(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the bodies: these are the supported fields. A field of value null counts as absent."""


class DecodingFields(Fields, frozen=True, kw_only=True):
    """Base of the bodies that say how tokens are drawn and where the text ends."""

    stop: StopOrNone | Annotated[tuple[StopOrNone, ...], msgspec.Meta(max_length=MAX_STOP_TEXTS)] | None = None
    temperature: Temperature | None = None
    top_p: Share | None = None
    top_k: Count | None = None
    seed: int | None = None  # below 0 means none

    def sampling(self) -> Sampling | None:
        """How tokens are drawn; None for the most probable ones. Without a seed each request has its own."""
        if not self.temperature or self.top_p == 0:
            return None
        seed = self.seed if self.seed is not None and self.seed >= 0 else random.getrandbits(63)
        return Sampling(self.temperature, 1.0 if self.top_p is None else self.top_p, max(0, self.top_k or 0), seed)

    @property
    def repeatable(self) -> bool:
        """Whether the client expects the same text of the same body, whatever came before: it names a seed."""
        return self.seed is not None and self.seed >= 0

    def stop_texts(self) -> tuple[str, ...]:
        """The texts of `stop` with \\n for line ends, each once; an empty text counts as none."""
        texts = (self.stop,) if isinstance(self.stop, str) else self.stop or ()
        return tuple(dict.fromkeys(map(inward, filter(None, texts))))


class BodyReader:
    """Reads bodies, and remembers which client's ignored fields the log has named."""

    def __init__(self) -> None:
        self._named: set[tuple[str, str, str]] = set()  # client, path and field

    async def read(self, request: Request, kind: type[Body]) -> Body:
        """The JSON object in the body.

        Raises HTTPException: 413 if larger than MAX_BODY_BYTES, 400 if not JSON, 422 for a wrong value or a field of
        UNSERVED.
        """
        return self.converted(request, await read_object(request), kind)

    def converted(self, request: Request, values: dict[str, Any], kind: type[Body], where: str = "$") -> Body:
        """The struct of an object's fields, which stands in the body at `where`. Raises HTTPException as `read`."""
        for name in sorted(values.keys() - {field.encode_name for field in msgspec.structs.fields(kind)}):  # type: ignore[arg-type]
            if name in UNSERVED and values[name]:
                raise HTTPException(422, f"{name} is not supported - at `{where}.{name}`")
            self._note_ignored(request, f"{where}.{name}")
        try:
            return msgspec.convert(values, kind)
        except msgspec.ValidationError as error:
            message, _, path = str(error).partition(" - at `$")
            raise HTTPException(422, f"{message} - at `{where}{path.rstrip('`')}`") from error

    def _note_ignored(self, request: Request, field: str) -> None:
        field = repr(field[:MAX_NAME_CHARS])[1:-1]
        key = (request.client.host if request.client else "", request.url.path, field)
        if key not in self._named and len(self._named) < MAX_NAMED_CLIENTS:
            self._named.add(key)
            log.info("%s is ignored at %s, where %s sends it", field, key[1], key[0])


async def read_object(request: Request) -> dict[str, Any]:
    """The fields of the body's JSON object, without those of value null. Raises HTTPException as `BodyReader.read`."""
    body, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= MAX_BODY_BYTES:
            body += chunk
        elif size > MOST_READ_BYTES:
            break
    if size > MAX_BODY_BYTES:
        raise HTTPException(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    try:
        values = decode_object(bytes(body))
    except msgspec.ValidationError as error:
        raise HTTPException(422, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from error
    return {name: value for name, value in values.items() if value is not None}


def max_tokens(count: int | None) -> int:
    """The limit that a client means; without one DEFAULT_MAX_TOKENS."""
    return DEFAULT_MAX_TOKENS if count is None or count < 0 else count
