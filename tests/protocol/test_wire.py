"""Messages survive the wire, and what is none is refused with what is wrong."""

from __future__ import annotations

import json
import re
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import BadInput
from protocol.messages import MAX_SESSION_CHARS, MAX_SNIPPETS, CompletionRequest, Prompt
from protocol.wire import (
    ClientMessage,
    Complete,
    CoreMessage,
    Envelope,
    decode_client,
    decode_core,
    decode_object,
    encode,
    read_envelope,
)


def bounded(kind: Any, limits: msgspec.Meta) -> st.SearchStrategy[Any]:
    """Values within the limits of a type."""
    if kind is int:
        return st.integers(limits.ge or 0, 10**6 if limits.le is None else limits.le)
    if kind is float:
        return st.floats(limits.ge or limits.gt or 0, limits.le or 1e6, exclude_min=limits.gt is not None)
    return st.text(min_size=limits.min_length or 0, max_size=8) if kind is str else values(kind)


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that messages have."""
    parts = get_args(kind)
    if get_origin(kind) is Annotated:
        return bounded(*parts)
    if get_origin(kind) in (Union, UnionType):
        return st.one_of(*map(values, parts))
    if get_origin(kind) is tuple:
        return st.lists(values(parts[0]), max_size=2).map(tuple) if ... in parts else st.tuples(*map(values, parts))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return st.builds(kind, **{field.name: values(field.type) for field in msgspec.structs.fields(kind)})
    numbers = {int: st.integers(0, 10**6), float: st.floats(0, 1e6)}
    return numbers[kind] if kind in numbers else st.from_type(kind)


@given(values(ClientMessage))
def test_what_clients_say(message: ClientMessage) -> None:
    assert decode_client(encode(message)) == message


@given(values(CoreMessage))
def test_what_cores_say(message: CoreMessage) -> None:
    assert decode_core(encode(message)) == message


def test_lone_surrogates_become_replacement_characters_and_pairs_what_they_stand_for() -> None:
    request = CompletionRequest("s\ud800", Prompt("é\ud800", "\ud83d\ude00"), 1)
    expected = CompletionRequest("s\ufffd", Prompt("é\ufffd", "\U0001f600"), 1)
    assert decode_client(encode(Complete(1, request))) == Complete(1, expected)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (rb'{"a": "\ude00 x"}', "\ufffd x"),
        (rb'{"a": "x \ud83d"}', "x \ufffd"),
        (rb'{"a": "\ud83d\ude00"}', "\U0001f600"),
        (rb'{"a": "\\ud83d"}', r"\ud83d"),
        (rb'{"a": ["\ud83d\ud83d\ude00"]}', ["\ufffd\U0001f600"]),
    ],
)
def test_half_a_surrogate_pair_is_a_replacement_character(text: bytes, value: object) -> None:
    assert decode_object(text) == {"a": value}


@pytest.mark.parametrize(
    "text",
    [b'{"a": "\\ud83d"', b'{"a": NaN, "b": "\\ud83d"}', '{"a": 1}'.encode("utf-16"), b'{"a": "\xed\xa0\xbd"}', b'{"a": "\n"}'],
)
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        decode_object(text)


@pytest.mark.parametrize(("text", "field"), [(b'{"a": 1, "b": 1e999}', "`$.b`"), (b'{"a": [' + b"9" * 5000 + b"]}", "`$.a`")])
def test_a_number_out_of_range_names_its_field(text: bytes, field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=re.escape(field)):
        decode_object(text)


@pytest.mark.parametrize("kind", ["Forget", "Release"])
def test_a_document_with_an_endless_name_is_refused(kind: str) -> None:
    name = "s" * (MAX_SESSION_CHARS + 1)
    with pytest.raises(BadInput, match=r"length <= 16384 - at `\$\.session`"):
        decode_client(json.dumps({"type": kind, "session": name}))
    with pytest.raises(BadInput, match=r"length <= 16384 - at `\$\.request\.session`"):
        decode_client(_complete(session=name))
    decode_client(_complete(session=name[1:]))


def test_more_snippets_than_a_prompt_may_have_are_refused() -> None:
    snippets = [{"path": "", "text": ""}] * (MAX_SNIPPETS + 1)
    with pytest.raises(BadInput, match=r"length <= 1024 - at `\$\.request\.prompt\.context`"):
        decode_client(_complete(prompt={"prefix": "", "suffix": "", "context": snippets}))


def _complete(**changes: Any) -> str:
    request = {"session": "s", "prompt": {"prefix": "", "suffix": ""}, "max_tokens": 1}
    return json.dumps({"type": "Complete", "id": 1, "request": request | changes})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "{"),
        ("[]", "[]"),
        ('{"type": "Explode"}', "Explode"),
        ('{"type": "Cancel"}', "id"),
        ('{"type": "Cancel", "id": 1, "why": 2}', "why"),
        (_complete(max_tokens="many"), "max_tokens"),
        (_complete(prompt={"prefix": "", "suffix": "", "order": "mps"}), "order"),
        (_complete(surprise=1), "surprise"),
        (_complete(max_tokens=1.5), "max_tokens"),
        (_complete(max_tokens=float("nan")), "max_tokens"),
        (_complete(max_tokens=True), "max_tokens"),
        (_complete(prompt={"prefix": None, "suffix": ""}), "prefix"),
        (_complete(prompt={"prefix": "", "suffix": 5}), "suffix"),
        (_complete(reuse="no"), "reuse"),
        (_complete(session=["s"]), "session"),
        (_complete(max_tokens=-1), "max_tokens"),
        (_complete(alternatives=17), "alternatives"),
        (_complete(best_of=0), "best_of"),
        (_complete(stop_texts=["a", ""]), "stop_texts"),
        (_complete(stop_texts=["a"] * 65), "stop_texts"),
        (_complete(min_probability=1.5), "min_probability"),
        (_complete(max_decode_ms=-1), "max_decode_ms"),
        (_complete(copies="x" * 65_537), "copies"),
        (_complete(sampling={"temperature": 0}), "temperature"),
        (_complete(sampling={"temperature": 1, "top_p": 1.5}), "top_p"),
    ],
)
def test_what_is_no_message_is_refused(text: str, named: str) -> None:
    with pytest.raises(BadInput) as caught:
        decode_client(text)
    assert str(caught.value).startswith("not a midfill message")
    assert named in str(caught.value)


def test_a_long_text_is_not_repeated_whole() -> None:
    with pytest.raises(BadInput) as caught:
        decode_core("x" * 10_000)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("text", "envelope"),
    [
        ('{"type": "Complete", "id": 3, "request": {"session": "s", "new": 1}}', Envelope(id=3)),
        ('{"type": "StatusChanged", "status": {"new": 1}, "protocol_version": 9}', Envelope(protocol_version=9)),
        ('{"type": "Complete", "id": "3"}', Envelope()),
        ("[" * 100_000, Envelope()),
        (b"\xff", Envelope()),
    ],
)
def test_what_another_version_sends_can_be_told_in_part(text: str | bytes, envelope: Envelope) -> None:
    assert read_envelope(text) == envelope
