"""Reads JSON bodies: each field with its type, each error with the field's name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from protocol.errors import BadInput
from protocol.messages import ContextChunk

MAX_BODY_BYTES = 16 * 2**20
DEFAULT_MAX_TOKENS = 128

Fields = Mapping[str, Any]


async def read_fields(request: Request) -> Fields:
    """The JSON object in the body; BadInput where there is none, or it is larger than MAX_BODY_BYTES."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise BadInput(f"the body is larger than {MAX_BODY_BYTES} bytes")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the body is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BadInput(f"the body has to be a JSON object, not {type(fields).__name__}")
    if fields.get("stream"):
        raise BadInput("stream is true: answers are not streamed")
    return fields


def text_field(fields: Fields, name: str) -> str:
    """A text, empty where it is missing; BadInput, naming the field, where it is something else."""
    value = fields.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadInput(f"{name} has to be a string, not {json.dumps(value)[:100]}")
    return value


def count_field(fields: Fields, name: str) -> int:
    """A number of tokens, with a default; BadInput, naming the field, where it is something else."""
    value = fields.get(name)
    if value is None or value == -1:  # llama.cpp's "no limit"
        return DEFAULT_MAX_TOKENS
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadInput(f"{name} has to be a whole number of tokens, not {json.dumps(value)[:100]}")
    return value


def context_field(fields: Fields) -> tuple[ContextChunk, ...]:
    """llama.cpp's `input_extra`: other files that stand before the prefix."""
    extra = fields.get("input_extra") or []
    if not isinstance(extra, list) or not all(isinstance(chunk, dict) for chunk in extra):
        raise BadInput("input_extra has to be a list of objects with filename and text")
    return tuple(ContextChunk(text_field(chunk, "filename"), text_field(chunk, "text")) for chunk in extra)
