"""Reads the JSON bodies of HTTP requests into prompts and limits; errors name the field."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from inference.server.efim import split_prefix
from protocol.messages import ANONYMOUS, Prompt, Snippet

MAX_BODY_BYTES = 16 * 2**20
DEFAULT_MAX_TOKENS = 128

Body = TypeVar("Body", bound="_Body")
Count = Annotated[int, msgspec.Meta(ge=-1)] | None  # -1 is llama.cpp's "no limit"


class _Body(msgspec.Struct, frozen=True):
    """The fields that every request has; unknown fields are ignored."""

    stream: bool | None = None
    session: Annotated[str, msgspec.Meta(max_length=200)] | None = None

    @property
    def session_name(self) -> str:
        """The engine's session for the request."""
        return f"http/{self.session}" if self.session else ANONYMOUS


class ExtraInput(msgspec.Struct, frozen=True):
    """A snippet of another file, in llama.cpp's format."""

    filename: str | None = None
    text: str | None = None


class InfillBody(_Body, frozen=True):
    """llama.cpp's `/infill`. Its `prompt` follows the middle marker: it is the text between prefix and cursor."""

    input_prefix: str | None = None
    input_suffix: str | None = None
    prompt: str | None = None
    input_extra: tuple[ExtraInput, ...] | None = None
    n_predict: Count = None

    @property
    def max_tokens(self) -> int:
        return _limit(self.n_predict)

    def efim_prompt(self) -> Prompt:
        """The prompt, laid out as a language server would."""
        chunks = tuple(Snippet(extra.filename or "", extra.text or "") for extra in self.input_extra or ())
        before = (self.input_prefix or "") + (self.prompt or "")
        prefix, increment = split_prefix(before)
        return Prompt(prefix, self.input_suffix or "", increment, chunks)


class CompletionsBody(_Body, frozen=True):
    """OpenAI's `/v1/completions`; without `suffix` nothing follows the cursor."""

    prompt: str | None = None
    suffix: str | None = None
    max_tokens: Count = None

    @property
    def limit(self) -> int:
        return _limit(self.max_tokens)

    def efim_prompt(self) -> Prompt:
        """The prompt, laid out as a language server would."""
        prefix, increment = split_prefix(self.prompt or "")
        return Prompt(prefix, self.suffix or "", increment)


async def read_body(request: Request, kind: type[Body]) -> Body:
    """Parse the JSON object in the body.

    Raises HTTPException: 413 if larger than MAX_BODY_BYTES, 400 if not JSON, 422 if a field has a wrong value.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    try:
        fields = msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise HTTPException(422, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from error
    if fields.stream:
        raise HTTPException(422, "stream must be false: streaming is not supported - at `$.stream`")
    return fields


def _limit(count: int | None) -> int:
    return DEFAULT_MAX_TOKENS if count is None or count < 0 else count
