from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from inference.engine_holder import EngineHolder
from inference.loading import EngineOptions, load_engine
from inference.metrics import Metrics
from inference.presence import Presence
from inference.scheduler import Scheduler
from inference.service import make_app
from protocol.proof import PROOF_PATH, proof
from tests.inference.serving import ACCESS, BEARER, TOKEN


@pytest.fixture
def client(tiny_checkpoint: Path) -> Iterator[TestClient]:
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1)
    presence, metrics = Presence(), Metrics()
    holder = EngineHolder("tiny", lambda progress: load_engine(options, progress), presence.announce)
    scheduler = Scheduler(holder, observe=metrics.observe)
    with TestClient(make_app(scheduler, presence, metrics, ACCESS)) as client:
        yield client
    scheduler.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": TOKEN}, 401),
        ({**BEARER, "Origin": "https://evil.example"}, 403),
        ({**BEARER, "Origin": "null"}, 403),
    ],
)
def test_without_the_token_nothing_is_answered(client: TestClient, headers: dict[str, str], status: int) -> None:
    for method, path in (
        ("GET", "/health"),
        ("GET", "/metrics"),
        ("POST", "/infill"),
        ("POST", "/v1/completions"),
        ("GET", "/nowhere"),
    ):
        response = client.request(method, path, headers=headers)
        assert response.status_code == status
        assert "error" in response.json()


def test_the_core_proves_that_it_knows_the_token_without_being_shown_it(client: TestClient) -> None:
    answer = client.get(f"{PROOF_PATH}?nonce={'n' * 32}")
    assert (answer.status_code, answer.text) == (200, proof(TOKEN, "n" * 32, 80))
    assert TOKEN not in answer.text
    assert client.get(f"{PROOF_PATH}?nonce=short").status_code == 400
    assert client.get(f"{PROOF_PATH}?nonce={'n' * 32}", headers={"Origin": "https://evil.example"}).status_code == 403


def test_allowed_origin_is_answered(client: TestClient) -> None:
    assert client.get("/health", headers={**BEARER, "Origin": "https://allowed.example"}).status_code == 200


def post(client: TestClient, path: str, body: Any) -> Any:
    response = client.post(path, json=body, headers=BEARER)
    assert response.status_code == 200, response.text
    return response.json()


def test_infill_has_the_shape_of_llama_cpp(client: TestClient) -> None:
    body = {"input_prefix": "def f():\n", "input_suffix": "\n", "prompt": "    return", "n_predict": 5, "top_k": 40}
    first = post(client, "/infill", body)
    assert isinstance(first["content"], str)
    assert first["tokens_predicted"] <= 5
    again = post(client, "/infill", body)
    assert again["content"] == first["content"]
    assert again["tokens_cached"] == again["tokens_evaluated"] - 1
    extra = post(client, "/infill", {**body, "input_extra": [{"filename": "a.py", "text": "x = 1\n"}]})
    assert extra["tokens_evaluated"] > first["tokens_evaluated"]


def test_completions_have_the_shape_of_openai(client: TestClient) -> None:
    body = {"model": "any", "prompt": "def f():\n", "suffix": "\n", "max_tokens": 5, "temperature": 0.2}
    answer = post(client, "/v1/completions", body)
    assert answer["object"] == "text_completion"
    assert answer["choices"][0]["finish_reason"] in ("length", "stop")
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    warm = post(client, "/v1/completions", body)
    assert warm["choices"] == answer["choices"]
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("/infill", b"nonsense", "not JSON"),
        ("/infill", b"[]", "JSON object"),
        ("/infill", b"[" * 100_000, "not JSON"),
        ("/infill", b'{"input_prefix": 5}', "input_prefix has to be a string, not 5"),
        ("/infill", b'{"n_predict": "many"}', "n_predict"),
        ("/infill", b'{"input_extra": ["x"]}', "input_extra"),
        ("/infill", b'{"stream": true}', "stream"),
        ("/v1/completions", b'{"prompt": [1, 2]}', "prompt has to be a string"),
        ("/v1/completions", b'{"prompt": "x", "max_tokens": 1000000}', "do not fit"),
        ("/v1/completions", b'"' + b"x" * (17 * 2**20) + b'"', "larger than"),
    ],
)
def test_bad_bodies_are_refused(client: TestClient, path: str, content: bytes, message: str) -> None:
    response = client.post(path, content=content, headers=BEARER)
    assert response.status_code == 400
    assert message in response.json()["error"]["message"]


def test_metrics_and_health(client: TestClient) -> None:
    assert client.get("/health", headers=BEARER).json()["status"] == "unloaded"
    post(client, "/infill", {"input_prefix": "x", "n_predict": 2})
    post(client, "/infill", {"input_prefix": "y", "n_predict": 0})
    assert client.get("/health", headers=BEARER).json()["status"] == "ready"
    text = client.get("/metrics", headers=BEARER).text
    assert 'midfill_requests_total{kind="suggestion",outcome="completed"} 1' in text
    assert 'midfill_requests_total{kind="ahead",outcome="completed"} 1' in text
    assert "midfill_model_loaded 1" in text
    assert 'midfill_resident_tokens{tier="device"}' in text
    counters = dict(line.split(" ") for line in text.splitlines() if not line.startswith("#"))
    assert int(counters["midfill_recomputed_tokens_total"]) <= int(counters["midfill_prompt_tokens_total"])


def test_model_that_cannot_be_loaded_is_told(tmp_path: Path) -> None:
    presence, metrics = Presence(), Metrics()
    options = EngineOptions(str(tmp_path))
    scheduler = Scheduler(EngineHolder("none", lambda progress: load_engine(options, progress), presence.announce))
    with TestClient(make_app(scheduler, presence, metrics, ACCESS)) as client:
        response = client.post("/infill", json={"input_prefix": "x"}, headers=BEARER)
        assert response.status_code == 503
        assert "no config.json" in response.json()["error"]["message"]
        assert client.get("/health", headers=BEARER).status_code == 503
    scheduler.close()
