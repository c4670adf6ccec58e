"""Texts with \r\n, in the bodies of all APIs: asked as with \n, and answered with the client's line ends."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from starlette.testclient import TestClient

from inference.core.http.bodies import inward, line_end_of, outward
from inference.core.scheduler import Scheduler
from inference.engine.request import Request
from protocol.messages import Alternative, Completion, CompletionRequest, Usage
from tests.inference.core.http.calls import AFTER, BEFORE, post, post_events

SNIPPET = "def other():\n    return 1\n"
RENDERED = f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>"
SAID = "append(name)\n    found.sort()\n"
ANSWER = Completion(SAID, "stop", Usage(10, 4, 3, 2, 0.0, 0.0, 0.0), alternatives=(Alternative("other\n", "stop"),))
Ask = tuple[str, dict[str, Any], Callable[[Any], list[str]]]


def _choices(answer: Any) -> list[str]:
    return [choice["text"] for choice in answer["choices"]]


ASKS: dict[str, Ask] = {
    "llama.cpp": (
        "/infill",
        {
            "input_prefix": BEFORE.rpartition("\n")[0] + "\n",
            "prompt": BEFORE.rpartition("\n")[2],
            "input_suffix": AFTER,
            "input_extra": [{"filename": "b.py", "text": SNIPPET}],
            "n_indent": 8,
            "n_cmpl": 2,
            "stop": ["\n\n"],
        },
        lambda answer: [one["content"] for one in answer],
    ),
    "openai": ("/v1/completions", {"prompt": BEFORE, "suffix": AFTER, "stop": "\n\n", "n": 2}, _choices),
    "openai, rendered": ("/v1/completions", {"prompt": RENDERED}, _choices),
    "ollama": (
        "/api/generate",
        {"prompt": BEFORE, "suffix": AFTER, "stream": False, "options": {"stop": ["\n\n"]}},
        lambda answer: [answer["response"]],
    ),
}


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[CompletionRequest]:
    """What the scheduler is asked for; it answers with ANSWER, which grows."""
    requests: list[CompletionRequest] = []

    def submit(_: Scheduler, request: Request) -> None:
        requests.append(request.spec)
        for length in range(1, len(SAID)) if request.grows else ():
            request.report_text(SAID[:length])
        request.outcome = replace(ANSWER, alternatives=ANSWER.alternatives[: request.spec.alternatives])
        request.changed(request)

    monkeypatch.setattr(Scheduler, "submit", submit)
    return requests


def with_returns(value: Any) -> Any:
    """The body with \\r\\n for every \\n."""
    return json.loads(json.dumps(value).replace(r"\n", r"\r\n"))


@pytest.mark.parametrize(("path", "body", "texts"), ASKS.values(), ids=ASKS)
def test_the_same_is_asked_and_answered_with_the_line_ends_of_the_client(
    client: TestClient, answered: list[CompletionRequest], path: str, body: dict[str, Any], texts: Callable[..., Any]
) -> None:
    plain = texts(post(client, path, {**body, "session": "plain"}))
    returned = texts(post(client, path, {**with_returns(body), "session": "returned"}))
    first, second = answered
    assert (first.prompt, first.stop, first.stop_texts) == (second.prompt, second.stop, second.stop_texts)
    assert "\r" not in repr(second)
    assert any(SAID in text for text in plain)
    assert returned == [text.replace("\n", "\r\n") for text in plain]


@pytest.mark.parametrize("stops", [{}, {"stop": "\r\n"}])
def test_a_stream_has_the_whole_answer(client: TestClient, answered: list[CompletionRequest], stops: dict[str, str]) -> None:
    body = with_returns({"prompt": BEFORE, "suffix": AFTER, "stream": True})
    *events, done = post_events(client, "/v1/completions", {**body, **stops})
    assert done == "[DONE]"
    assert "".join(event["choices"][0]["text"] for event in events) == SAID.replace("\n", "\r\n")
    assert answered[0].stop_texts == (("\n",) if stops else ())


@pytest.mark.parametrize("path", ["/infill", "/v1/completions", "/api/generate"])
def test_empty_stops_and_a_share_of_nothing_are_as_the_apis_have_them(
    client: TestClient, answered: list[CompletionRequest], path: str
) -> None:
    fields = {"stop": ["", "\n", ""], "top_p": 0, "temperature": 1.0}
    post(
        client,
        path,
        {"input_prefix": "x"} | fields if path == "/infill" else {"prompt": "x", "stream": False} | fields | {"options": fields},
    )
    post(client, path, {"prompt": "x", "stream": False, "stop": "", "options": {"stop": ""}})
    first, second = answered
    assert (first.stop_texts, first.sampling) == (("\n",), None)
    assert second.stop_texts == ()


@pytest.mark.parametrize(
    ("before", "after", "line_end"),
    [
        ("a\r\nb", "c\nd\r\n", "\n"),  # mixed: that of the cursor's line
        ("a\nb", "c\r\n", "\r\n"),
        ("a\nb\r\nc", "d", "\r\n"),
        ("a\r\nb\nc", "d", "\n"),
        ("a", "b", "\n"),
        ("", "\n", "\n"),
        ("\n", "", "\n"),
        ("a\r", "b\r", "\n"),
    ],
)
def test_the_line_end_is_that_of_the_cursors_line(before: str, after: str, line_end: str) -> None:
    assert line_end_of(before, after) == line_end


@given(st.text("a\r\n"), st.sampled_from(["\n", "\r\n"]))
def test_a_growing_text_is_never_taken_back(text: str, line_end: str) -> None:
    told = [outward(text[:length], line_end) for length in range(len(text) + 1)]
    assert all(later.startswith(earlier) for earlier, later in pairwise(told))
    assert inward(told[-1]).replace("\r", "") == text.replace("\r", "")
