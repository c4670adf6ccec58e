from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

from inference.core.http.bodies import DEFAULT_MAX_TOKENS
from inference.core.scheduler import Scheduler
from protocol.errors import Busy
from protocol.messages import CompletionRequest
from tests.inference.core.http.calls import AFTER, BEFORE, post, refusal
from tests.inference.serving import BEARER

PATH = "/api/generate"
BODY: dict[str, Any] = {"model": "any", "prompt": BEFORE, "suffix": AFTER, "options": {"num_predict": 12}}


def lines(client: TestClient, body: Any) -> list[Any]:
    response = client.post(PATH, json=body)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in response.text.splitlines()]


def test_text_comes_in_lines_unless_it_is_wanted_whole(client: TestClient) -> None:
    before = f"# asked of Ollama's API\n{BEFORE}"  # a text that was generated before would come at once, as a draft
    *growing, last = lines(client, {**BODY, "prompt": before})
    whole = post(client, PATH, {**BODY, "prompt": before, "stream": False})
    assert [line["done"] for line in growing] == [False] * len(growing)
    assert len(growing) > 2
    assert "".join(line["response"] for line in [*growing, last]) == whole["response"]
    assert (last["done"], last["done_reason"], last["eval_count"]) == (True, "length", 12)
    assert whole["prompt_eval_cached_count"] == whole["prompt_eval_count"] - 1
    same = {"prompt": before, "suffix": AFTER, "max_tokens": 12}
    assert whole["response"] == post(client, "/v1/completions", same)["choices"][0]["text"]


def test_rendered_prompt_is_read_back(client: TestClient, asked: list[CompletionRequest]) -> None:
    rendered = f"<|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>"
    post(client, PATH, {**BODY, "prompt": rendered, "suffix": None, "raw": True, "stream": False})
    prompt = asked[0].prompt
    assert (prompt.prefix + prompt.increment, prompt.suffix) == (BEFORE, AFTER)


def test_options_decide_how_text_is_decoded(client: TestClient, asked: list[CompletionRequest]) -> None:
    options = {"temperature": 0.4, "top_p": 0.9, "top_k": 40, "seed": 5, "stop": ["\n\n"], "num_ctx": 4096, "min_p": None}
    post(client, PATH, {**BODY, "options": options, "stream": False})
    sampling = asked[0].sampling
    assert sampling is not None
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.4, 0.9, 40, 5)
    assert (asked[0].stop_texts, asked[0].max_tokens) == (("\n\n",), 128)


@pytest.mark.parametrize("unlimited", [-1, -2])
def test_no_limit_is_the_cores_own(client: TestClient, asked: list[CompletionRequest], unlimited: int) -> None:
    post(client, PATH, {**BODY, "options": {"num_predict": unlimited}, "stream": False})
    assert asked[0].max_tokens == DEFAULT_MAX_TOKENS


def test_empty_prompt_loads_or_unloads(client: TestClient, asked: list[CompletionRequest]) -> None:
    assert post(client, PATH, {"model": "any"})["done_reason"] == "load"
    assert asked[0].max_tokens == 0
    assert post(client, PATH, {"model": "any", "keep_alive": 0})["done_reason"] == "unload"
    assert len(asked) == 1


@pytest.mark.parametrize("headers", [{}, BEARER])
@pytest.mark.parametrize(("method", "text"), [("GET", "Ollama is running"), ("HEAD", "")])
def test_clients_find_the_server(client: TestClient, method: str, text: str, headers: dict[str, str]) -> None:
    with_token = client.headers.pop("Authorization")
    try:
        response = client.request(method, "/", headers=headers)
    finally:
        client.headers["Authorization"] = with_token
    assert (response.status_code, response.text) == (200, text)
    assert response.headers["content-type"].startswith("text/plain")


def test_model_is_described(client: TestClient) -> None:
    post(client, PATH, {**BODY, "stream": False})
    (model,) = client.get("/api/tags").json()["models"]
    assert model["name"] == "tiny"
    shown = post(client, "/api/show", {"name": "any"})
    assert ".Suffix" in shown["template"]
    assert (shown["parameters"], "insert" in shown["capabilities"]) == ("num_ctx 2048", True)
    assert set(client.get("/api/version").json()) == {"version"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"system": "be brief"}, "system is not supported"),
        ({"options": {"grammar": "x"}}, "grammar is not supported - at `$.options.grammar`"),
        ({"options": {"temperature": "hot"}}, "`$.options.temperature`"),
        ({"options": 5}, "`$.options`"),
    ],
)
def test_what_cannot_be_served_is_refused_by_name(client: TestClient, fields: dict[str, Any], message: str) -> None:
    assert message in refusal(client, PATH, {**BODY, **fields})


def test_errors_are_texts(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_named: Any) -> int:
        raise Busy("64 requests wait")

    assert "not JSON" in client.post(PATH, content=b"x").json()["error"]
    monkeypatch.setattr(Scheduler, "submit", refuse)
    for stream in (False, True):
        response = client.post(PATH, json={**BODY, "stream": stream})
        assert (response.status_code, response.json()) == (429, {"error": "64 requests wait"})
        assert response.headers["retry-after"] == "1"
