from __future__ import annotations

import logging
from typing import Any

import pytest
from starlette.testclient import TestClient

from protocol.messages import CompletionRequest
from tests.inference.core.http.calls import AFTER, BEFORE, post, post_events, refusal

PATH = "/v1/completions"
BODY = {"model": "any", "prompt": BEFORE, "suffix": AFTER, "max_tokens": 24}


def texts(answer: Any) -> list[str]:
    assert [choice["index"] for choice in answer["choices"]] == list(range(len(answer["choices"])))
    return [choice["text"] for choice in answer["choices"]]


def test_stream_brings_the_text_in_pieces(client: TestClient) -> None:
    body = {**BODY, "prompt": f"# asked of OpenAI's API\n{BEFORE}"}  # what was generated before would come as a draft
    *chunks, done = post_events(client, PATH, {**body, "stream": True})
    whole = post(client, PATH, body)
    assert done == "[DONE]"
    assert len(chunks) > 2
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["choices"][0]["text"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert {(chunk["id"], chunk["object"]) for chunk in chunks} == {(chunks[0]["id"], "text_completion")}
    assert all("usage" not in chunk for chunk in chunks)


def test_stream_ends_with_the_usage_if_it_is_wanted(client: TestClient) -> None:
    whole = post(client, PATH, BODY)
    *chunks, usage, _done = post_events(client, PATH, {**BODY, "stream": True, "stream_options": {"include_usage": True}})
    assert {chunk["usage"] for chunk in chunks} == {None}
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert usage["usage"]["prompt_tokens_details"]["cached_tokens"] == usage["usage"]["prompt_tokens"] - 1


def test_text_ends_before_the_first_stop(client: TestClient) -> None:
    text = post(client, PATH, BODY)["choices"][0]["text"]
    stop = text[5:8]
    for wanted in (stop, [stop], ["never in it", stop, stop]):
        answer = post(client, PATH, {**BODY, "stop": wanted})
        assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == (text.partition(stop)[0], "stop")
    *chunks, _done = post_events(client, PATH, {**BODY, "stop": stop, "stream": True})
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == text.partition(stop)[0]


def test_no_tokens_warm_the_prompt(client: TestClient) -> None:
    body = {**BODY, "prompt": "# warmed\n" * 30 + BEFORE}
    warmed = post(client, PATH, {**body, "max_tokens": 0})
    assert (texts(warmed), warmed["usage"]["completion_tokens"]) == ([""], 0)
    usage = post(client, PATH, body)["usage"]
    assert usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] == 1


def test_greedy_choices_begin_differently(client: TestClient) -> None:
    first = post(client, PATH, BODY)
    several = post(client, PATH, {**BODY, "n": 3})
    assert texts(several)[0] == texts(first)[0]
    assert len(set(texts(several))) == 3
    assert several["usage"]["prompt_tokens"] == first["usage"]["prompt_tokens"]
    assert several["usage"]["completion_tokens"] > 2 * 24
    *chunks, _done = post_events(client, PATH, {**BODY, "n": 3, "stream": True})
    streamed = ["", "", ""]
    for chunk in chunks:
        streamed[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert streamed == texts(several)


def test_sampled_choices_depend_on_the_seed(client: TestClient) -> None:
    body = {**BODY, "temperature": 1.5, "top_p": 0.95, "n": 3}
    first = post(client, PATH, {**body, "seed": 7})
    assert len(set(texts(first))) == 3
    assert texts(post(client, PATH, {**body, "seed": 7})) == texts(first)
    assert texts(post(client, PATH, {**body, "seed": 8}))[:2] == texts(first)[1:]
    assert texts(post(client, PATH, body)) != texts(post(client, PATH, body))
    assert first["usage"]["prompt_tokens"] == post(client, PATH, BODY)["usage"]["prompt_tokens"]
    assert texts(post(client, PATH, {**body, "top_k": 1})) == texts(post(client, PATH, BODY)) * 3


def test_half_of_a_surrogate_pair_is_one_unknown_character(client: TestClient) -> None:
    body = b'{"prompt": "x = \\ud83d", "max_tokens": 5}'
    assert (
        client.post(PATH, content=body).json()["choices"]
        == post(client, PATH, {"prompt": "x = \ufffd", "max_tokens": 5})["choices"]
    )


def test_models_are_one(client: TestClient) -> None:
    (model,) = client.get("/v1/models").json()["data"]
    assert (model["id"], model["object"]) == ("tiny", "model")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"logit_bias": {"50256": -100}}, "logit_bias is not supported - at `$.logit_bias`"),
        ({"logprobs": 2}, "logprobs is not supported"),
        ({"echo": True}, "echo is not supported"),
        ({"stream_options": {"include_usage": 1}, "stream": True}, "`$.stream_options.include_usage`"),
        ({"n": 17}, "`$.n`"),
        ({"n": 0}, "`$.n`"),
        ({"stop": ["x"] * 65}, "`$.stop`"),
        ({"stop": ["x" * 257]}, "`$.stop[0]`"),
        ({"stop": "x" * 257}, "`$.stop`"),
        ({"temperature": -1}, "`$.temperature`"),
        ({"temperature": "hot"}, "`$.temperature`"),
        ({"top_p": -0.1}, "`$.top_p`"),
        ({"prompt": ["a"]}, "`$.prompt`"),
        (
            {"prompt": "<|file_sep|>a.py\nx" * 1100 + "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>", "suffix": None},
            "the prompt has more than 1024 files",
        ),
        ({"user": "x" * 201}, "`$.user`"),
        ({"stream": "yes"}, "`$.stream`"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(client: TestClient, fields: dict[str, Any], message: str) -> None:
    assert message in refusal(client, PATH, {**BODY, **fields})


def test_other_fields_are_ignored_and_named_once(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    body = {**BODY, "presence_penalty": 1.5, "logit_bias": {}, "stop": None, "tools": [{"secret": "unmistakable"}], "best_of": 1}
    body["x\n" + "y" * 1000] = 1
    with caplog.at_level(logging.INFO, "inference.core.http.bodies"):
        for _ in range(2):
            assert texts(post(client, PATH, body)) == texts(post(client, PATH, BODY))
    named = [record.getMessage() for record in caplog.records]
    for name in ("presence_penalty", "tools", "best_of", r"x\n" + "y" * 196):
        assert sum(message.startswith(f"$.{name} is ignored at {PATH}, where testclient") for message in named) == 1
    assert "unmistakable" not in caplog.text


def test_session_is_named_by_header_or_user(client: TestClient, asked: list[CompletionRequest]) -> None:
    post(client, PATH, BODY, **{"X-Session-ID": "a.py"})
    post(client, PATH, {**BODY, "user": "me"})
    post(client, PATH, {**BODY, "user": "me", "session": "b.py"})
    post(client, PATH, {**BODY, "user": "me", "session": "b.py"}, **{"X-Session-ID": "a.py"})
    post(client, PATH, BODY)
    assert [request.session for request in asked] == ["http/a.py", "http/me", "http/b.py", "http/a.py", "anonymous"]
    assert "X-Session-ID has 201 characters" in refusal(client, PATH, BODY, **{"X-Session-ID": "x" * 201})


def test_a_next_edit_prompt_of_another_model_is_refused(client: TestClient) -> None:
    prompt = "<[fim-suffix]>\n<[fim-prefix]><filename>a.py\n<|marker_1|>x\n<|marker_2|>\n<[fim-middle]>"
    response = client.post(PATH, json={"prompt": prompt})
    assert response.status_code == 400
    assert "has no token '<[fim-suffix]>'" in response.json()["error"]["message"]
