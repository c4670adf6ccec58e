from __future__ import annotations

from starlette.testclient import TestClient

from tests.inference.core.http.calls import AFTER, BEFORE, post, post_events, refusal

PATH = "/v1/fim/completions"
BODY = {"model": "codestral-latest", "prompt": BEFORE, "suffix": AFTER, "max_tokens": 12}


def test_answer_is_a_message(client: TestClient) -> None:
    answer = post(client, PATH, BODY)
    (choice,) = answer["choices"]
    assert (answer["object"], choice["message"]["role"], choice["finish_reason"]) == ("chat.completion", "assistant", "length")
    openai = post(client, "/v1/completions", BODY)
    assert choice["message"]["content"] == openai["choices"][0]["text"]
    assert answer["usage"]["completion_tokens"] == 12
    assert openai["usage"]["prompt_tokens_details"]["cached_tokens"] == answer["usage"]["prompt_tokens"] - 1


def test_stream_brings_deltas(client: TestClient) -> None:
    *chunks, done = post_events(client, PATH, {**BODY, "stream": True, "frequency_penalty": 0})
    whole = post(client, PATH, BODY)
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == (whole["choices"][0]["message"]["content"])
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * (len(chunks) - 1) + ["length"]
    assert chunks[-1]["usage"]["completion_tokens"] == 12


def test_what_is_not_supported_is_refused_by_name(client: TestClient) -> None:
    assert "min_tokens is 5" in refusal(client, PATH, {**BODY, "min_tokens": 5})
    assert "messages is not supported" in refusal(client, PATH, {**BODY, "messages": []})
    assert "prompt" in refusal(client, PATH, {"suffix": AFTER})
