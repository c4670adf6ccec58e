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


def test_several_prompts_have_choices_one_after_another(client: TestClient) -> None:
    alone = [texts(post(client, PATH, {"prompt": prompt, "max_tokens": 5, "n": 2})) for prompt in ("a = ", "b = ")]
    together = post(client, PATH, {"prompt": ["a = ", "b = "], "max_tokens": 5, "n": 2})
    assert texts(together) == alone[0] + alone[1]
    first, empty = texts(post(client, PATH, {"prompt": ["a = ", ""], "max_tokens": 5}))
    assert [first, empty] == [texts(post(client, PATH, {"prompt": [one], "max_tokens": 5}))[0] for one in ("a = ", "")]


def test_token_ids_are_the_prompt(client: TestClient) -> None:
    answer = post(client, PATH, {"prompt": [70, 71, 72], "max_tokens": 5})
    assert answer["usage"]["prompt_tokens"] == 3
    both = post(client, PATH, {"prompt": [[70, 71, 72], [80, 81]], "max_tokens": 5})
    assert texts(both)[0] == texts(answer)[0]
    assert both["usage"]["prompt_tokens"] == 5
    response = client.post(PATH, json={"prompt": [10**6]})
    assert (response.status_code, "1000000" in response.text) == (400, True)


def test_best_of_writes_more_texts_than_it_returns(client: TestClient, asked: list[CompletionRequest]) -> None:
    one, best = (post(client, PATH, {**BODY, "best_of": count}) for count in (1, 3))
    assert [request.best_of for request in asked] == [1, 3]
    assert best["usage"]["completion_tokens"] > one["usage"]["completion_tokens"]
    assert len(texts(best)) == 1
    assert len(set(texts(post(client, PATH, {**BODY, "n": 2, "best_of": 4})))) == 2
    *chunks, _done = post_events(client, PATH, {**BODY, "best_of": 3, "stream": True})
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == texts(best)[0]


def test_echo_puts_the_prompt_in_front(client: TestClient) -> None:
    (alone,) = texts(post(client, PATH, BODY))
    assert texts(post(client, PATH, {**BODY, "echo": True})) == [BEFORE + alone]
    assert texts(post(client, PATH, {**BODY, "echo": True, "max_tokens": 0})) == [BEFORE]
    *chunks, _done = post_events(client, PATH, {**BODY, "echo": True, "stream": True})
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == BEFORE + alone


def test_logprobs_spell_the_text(client: TestClient) -> None:
    choice = post(client, PATH, {**BODY, "logprobs": 2})["choices"][0]
    told = choice["logprobs"]
    assert "".join(told["tokens"]) == choice["text"] == texts(post(client, PATH, BODY))[0]
    assert told["text_offset"] == [len("".join(told["tokens"][:count])) for count in range(len(told["tokens"]))]
    for logprob, top in zip(told["token_logprobs"], told["top_logprobs"], strict=True):
        assert 1 <= len(top) <= 2  # two tokens can have one text
        assert logprob == pytest.approx(max(top.values()))
    assert post(client, PATH, {**BODY, "logprobs": 0})["choices"][0]["logprobs"]["top_logprobs"] == [{}] * 24
    *chunks, _done = post_events(client, PATH, {**BODY, "logprobs": 2, "stream": True})
    assert chunks[-1]["choices"][0]["logprobs"] == told


def test_logprobs_spell_a_text_that_a_stop_cuts_within_a_token(client: TestClient) -> None:
    whole = post(client, PATH, {**BODY, "logprobs": 0})["choices"][0]["logprobs"]["tokens"]
    stops = [token[1:] for token in whole if len(token) > 1]
    assert stops
    for stop in stops:
        choice = post(client, PATH, {**BODY, "logprobs": 0, "stop": [stop]})["choices"][0]
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"] == "".join(whole).partition(stop)[0]


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
        ({"presence_penalty": 0.5}, "presence_penalty is 0.5: only 0 is supported - at `$.presence_penalty`"),
        ({"logit_bias": {"50256": -100}}, "logit_bias is {'50256': -100}"),
        ({"tools": []}, "tools is not supported - at `$.tools`"),
        ({"stream_options": {"chunks": 1}, "stream": True}, "chunks is not supported - at `$.stream_options.chunks`"),
        ({"stream_options": {"include_usage": True}}, "only allowed with stream"),
        ({"best_of": 17}, "`$.best_of`"),
        ({"n": 3, "best_of": 2}, "best_of is 2: fewer than n, 3"),
        ({"best_of": 5, "logprobs": 1}, "logprobs is 1: with a best_of of 5"),
        ({"best_of": 5, "temperature": 0.5}, "best_of is 5: more than n, 1, needs temperature 0"),
        ({"n": 17}, "`$.n`"),
        ({"n": 0}, "`$.n`"),
        ({"stop": [""]}, "`$.stop[0]`"),
        ({"stop": ["x"] * 65}, "`$.stop`"),
        ({"stop": ["x" * 257]}, "`$.stop[0]`"),
        ({"stop": [5]}, "`$.stop[0]`"),
        ({"stop": "x" * 257}, "`$.stop`"),
        ({"n": 2, "logprobs": 1}, "logprobs is 1: with n = 2"),
        ({"temperature": -1}, "`$.temperature`"),
        ({"temperature": "hot"}, "`$.temperature`"),
        ({"top_p": 0}, "`$.top_p`"),
        ({"logprobs": 21}, "`$.logprobs`"),
        ({"logprobs": 1, "echo": True}, "logprobs is 1: with echo"),
        ({"prompt": ["a", [1]], "suffix": None}, "prompt is neither"),
        ({"prompt": [], "suffix": None}, "prompt is neither"),
        ({"prompt": [1, "a"], "suffix": None}, "prompt is neither"),
        ({"prompt": ["a"] * 33}, "prompt has 33 prompts"),
        ({"prompt": ["a"] * 32, "n": 3}, "32 prompts with 3 choices"),
        ({"prompt": ["a"] * 32, "best_of": 3}, "32 prompts with 3 choices"),
        ({"prompt": [1, 2]}, "suffix is not supported with a prompt of token ids"),
        ({"prompt": [1, 2], "suffix": None, "echo": True}, "echo is not supported with a prompt of token ids"),
        ({"prompt": [1.5]}, "`$.prompt"),
        (
            {"prompt": "<|file_sep|>a.py\nx" * 1100 + "<|fim_prefix|>a<|fim_suffix|>b<|fim_middle|>", "suffix": None},
            "the prompt has more than 1024 files",
        ),
        ({"user": "x" * 201}, "`$.user`"),
        ({"stream": "yes"}, "`$.stream`"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(client: TestClient, fields: dict[str, Any], message: str) -> None:
    assert message in refusal(client, PATH, {**BODY, **fields})


def test_fields_that_change_nothing_are_accepted_and_named_once(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    body = {**BODY, "presence_penalty": 0.0, "logit_bias": {}, "stop": None, "store": False, "best_of": 1}
    with caplog.at_level(logging.INFO, "inference.core.http.bodies"):
        for _ in range(2):
            assert texts(post(client, PATH, body)) == texts(post(client, PATH, BODY))
    named = [record.getMessage() for record in caplog.records]
    assert sum(message.startswith("store is ignored at /v1/completions: testclient") for message in named) == 1


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
