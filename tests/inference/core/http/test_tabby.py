from __future__ import annotations

import logging
from typing import Any

import pytest
from starlette.testclient import TestClient

from protocol.messages import CompletionRequest, Snippet, StopRule
from tests.inference.core.http.calls import AFTER, BEFORE, post, refusal

PATH = "/v1/completions"
SEGMENTS: dict[str, Any] = {"prefix": BEFORE, "suffix": AFTER, "filepath": "src/names.py"}
BODY: dict[str, Any] = {"language": "python", "segments": SEGMENTS}
FIRST, SECOND, THIRD = (Snippet(f"{name}.py", f"def {name}():\n    pass\n") for name in "abc")


def sent(*snippets: Snippet) -> list[dict[str, Any]]:
    return [{"filepath": snippet.path, "body": snippet.text, "score": 0.5} for snippet in snippets]


def test_answer_is_a_choice_with_what_it_cost(client: TestClient) -> None:
    answer = post(client, PATH, BODY)
    (choice,) = answer["choices"]
    assert answer["id"].startswith("cmpl-")
    assert (choice["index"], type(choice["text"])) == (0, str)
    again = post(client, PATH, BODY)
    assert again["choices"] == answer["choices"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == again["usage"]["prompt_tokens"] - 1


def test_openai_has_the_same_path(client: TestClient) -> None:
    assert post(client, PATH, {"prompt": BEFORE, "max_tokens": 2})["object"] == "text_completion"
    assert "object" not in post(client, PATH, BODY)
    assert "language is not supported" in refusal(client, PATH, {"language": "python", "segments": None})


def test_fields_become_a_request(client: TestClient, asked: list[CompletionRequest]) -> None:
    segments = {
        **SEGMENTS,
        "declarations": sent(FIRST),
        "relevant_snippets_from_changed_files": sent(SECOND, FIRST),
        "relevant_snippets_from_recently_opened_files": sent(THIRD),
    }
    post(client, PATH, {**BODY, "segments": segments, "user": "ann", "mode": "standard", "temperature": 1, "seed": 3})
    (request,) = asked
    assert request.prompt.prefix + request.prompt.increment == BEFORE
    assert (request.prompt.suffix, request.prompt.context) == (AFTER, (FIRST, SECOND, THIRD))
    assert (request.session, request.max_tokens) == ("http//ann/src/names.py", 64)
    assert request.stop == StopRule(indent=8, closers=(")", "]", "}"))
    assert request.sampling is not None
    assert (request.sampling.temperature, request.sampling.seed) == (1, 3)


def test_null_counts_as_absent(client: TestClient, asked: list[CompletionRequest]) -> None:
    post(client, PATH, {"segments": {"prefix": "x = ", "suffix": None, "filepath": None, "declarations": None}})
    assert (asked[0].session, asked[0].prompt.suffix, asked[0].sampling) == ("anonymous", "", None)


def test_snippets_that_come_or_change_places_compute_nothing_again(client: TestClient, asked: list[CompletionRequest]) -> None:
    """The agent chooses its snippets by the words above the cursor, so anew with each key."""
    given = [sent(FIRST, SECOND), sent(SECOND, FIRST), sent(THIRD, SECOND, FIRST), sent(SECOND, THIRD)]
    for number, snippets in enumerate(given):
        segments = {"prefix": "# above\n" * 9 + BEFORE + "add"[:number], "filepath": "b.py", "declarations": snippets}
        post(client, PATH, {**BODY, "segments": segments})
    contexts = [request.prompt.context for request in asked]
    assert contexts == [(FIRST, SECOND)] * 3 + [(SECOND,)]


def test_clipboard_is_not_in_the_log(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    address = "https://ann:hunter2@host/app.git"
    post(client, PATH, {**BODY, "segments": {**SEGMENTS, "clipboard": "hunter2", "git_url": address}})
    messages = "\n".join(record.getMessage() for record in caplog.records)
    assert "clipboard is ignored at /v1/completions" in messages
    assert "git_url is ignored at /v1/completions" in messages
    assert "hunter2" not in messages


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_health_is_what_the_agent_needs(client: TestClient, method: str) -> None:
    health = client.request(method, "/v1/health").json()
    assert health["model"] == "tiny"
    assert "device" in health
    assert not any(character.isdigit() for character in health["version"]["git_describe"])


def test_telemetry_is_switched_off_and_dropped(client: TestClient) -> None:
    assert client.get("/v1beta/server_setting").json() == {"disable_client_side_telemetry": True}
    event = {"type": "view", "completion_id": "cmpl-1", "choice_index": 0, "select_kind": None}
    assert client.post("/v1/events", json=event).status_code == 200
    assert client.post("/v1/events", content="nonsense").status_code == 400


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"mode": "next_edit_suggestion"}, "mode is 'next_edit_suggestion'"),
        ({"debug_options": {"return_prompt": True}}, "debug_options is not supported"),
        ({"segments": "x"}, "`$.segments`"),
        ({"segments": {"suffix": AFTER}}, "`$.segments`"),
        ({"segments": {**SEGMENTS, "edit_history": {}}}, "edit_history is not supported - at `$.segments.edit_history`"),
        ({"segments": {**SEGMENTS, "declarations": [{"body": "x"}]}}, "`$.segments.declarations[0]`"),
        ({"segments": {**SEGMENTS, "filepath": "x" * 5000}}, "`$.segments.filepath`"),
        ({"stream": True}, "stream is not supported"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(client: TestClient, fields: dict[str, Any], message: str) -> None:
    assert message in refusal(client, PATH, {**BODY, **fields})
