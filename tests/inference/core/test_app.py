from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpx2 import Response
from starlette.testclient import TestClient

from inference.core.metrics import Metrics
from inference.core.scheduler import Scheduler
from inference.loading.options import EngineOptions
from protocol.errors import Busy
from protocol.messages import ANONYMOUS, CompletionRequest
from protocol.tokens import PROOF_PATH, proof
from tests.inference.serving import BEARER, TOKEN, client_of
from tests.inference.tiny import write_checkpoint


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    checkpoint = write_checkpoint(tmp_path_factory.mktemp("tiny"))
    with client_of(EngineOptions(str(checkpoint), context_tokens=512, threads=1, slots=4)) as client:
        yield client


def error_of(response: Response) -> dict[str, str]:
    error: dict[str, str] = response.json()["error"]
    assert set(error) == {"message", "type", "code"}
    return error


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "unauthorized"),
        ({"Authorization": "Bearer wrong"}, 401, "unauthorized"),
        ({"Authorization": TOKEN}, 401, "unauthorized"),
        ({**BEARER, "Origin": "https://evil.example"}, 403, "forbidden"),
        ({**BEARER, "Origin": "null"}, 403, "forbidden"),
        ({**BEARER, "Host": "evil.example"}, 421, "misdirected_request"),
    ],
)
def test_without_the_token_nothing_is_answered(client: TestClient, headers: dict[str, str], status: int, code: str) -> None:
    for method, path in (
        ("GET", "/health"),
        ("GET", "/metrics"),
        ("POST", "/infill"),
        ("POST", "/v1/completions"),
        ("POST", "/api/generate"),
        ("GET", "/api/nowhere"),
        ("GET", "/nowhere"),
    ):
        if (path, headers) == ("/health", {}):
            continue
        response = client.request(method, path, headers=headers)
        assert response.status_code == status
        if path.startswith("/api/"):  # Ollama's form
            assert isinstance(response.json()["error"], str)
        else:
            assert error_of(response)["code"] == code


def test_the_core_proves_that_it_knows_the_token_without_being_shown_it(client: TestClient) -> None:
    answer = client.get(f"{PROOF_PATH}?nonce={'n' * 32}")
    assert (answer.status_code, answer.text) == (200, proof(TOKEN, "n" * 32, 8765))
    assert TOKEN not in answer.text
    assert client.get(f"{PROOF_PATH}?nonce=short").status_code == 400
    assert client.get(f"{PROOF_PATH}?nonce={'n' * 32}", headers={"Origin": "https://evil.example"}).status_code == 403


@pytest.mark.parametrize("headers", [{}, {"Origin": "https://allowed.example"}])
def test_health_without_the_token_is_liveness_alone(client: TestClient, headers: dict[str, str]) -> None:
    response = client.get("/health", headers=headers)
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_page_of_an_allowed_origin_can_ask_from_a_browser(client: TestClient) -> None:
    origin = {"Origin": "https://allowed.example"}
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    preflight = client.options("/infill", headers={**origin, **asked})
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://allowed.example"
    assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
    answer = client.get("/health", headers={**BEARER, **origin})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://allowed.example"
    refused = client.get("/metrics", headers=origin)  # the page can read why
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://allowed.example")
    assert client.options("/infill", headers={"Origin": "https://evil.example", **asked}).status_code == 403


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/infill", 405)])
def test_what_does_not_exist_is_an_error_in_json_too(client: TestClient, method: str, path: str, status: int) -> None:
    response = client.request(method, path, headers=BEARER)
    assert response.status_code == status
    error_of(response)


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


@pytest.mark.parametrize(
    ("path", "content", "status", "message"),
    [
        ("/infill", b"nonsense", 400, "not JSON"),
        ("/infill", b"\xff", 400, "not JSON"),
        ("/infill", b'{"input_prefix": "\xff"}', 400, "not JSON"),
        ("/infill", b"[]", 422, "object"),
        ("/infill", b"[" * 100_000, 422, "object"),
        ("/infill", b'{"x": ' + b"[" * 100_000, 400, "not JSON"),
        ("/infill", b'{"input_prefix": 5}', 422, "input_prefix"),
        ("/infill", b'{"n_predict": "many"}', 422, "n_predict"),
        ("/infill", b'{"n_predict": -2}', 422, "n_predict"),
        ("/infill", b'{"input_extra": ["x"]}', 422, "input_extra"),
        ("/infill", b'{"session": 5}', 422, "session"),
        ("/v1/completions", b'"' + b"x" * (17 * 2**20) + b'"', 413, "larger than"),
    ],
)
def test_bad_bodies_are_refused(client: TestClient, path: str, content: bytes, status: int, message: str) -> None:
    response = client.post(path, content=content, headers=BEARER)
    assert response.status_code == status
    assert message in error_of(response)["message"]


@pytest.mark.parametrize("count", [100_000, -1, None, 10**30])
def test_limits_that_cannot_be_met_are_clamped(client: TestClient, count: int | None) -> None:
    assert post(client, "/infill", {"input_prefix": "x", "n_predict": count})["tokens_predicted"] <= 256
    answer = post(client, "/v1/completions", {"prompt": "x", "max_tokens": count})
    assert answer["usage"]["completion_tokens"] <= 256


def test_prompt_is_laid_out_as_a_language_server_would(client: TestClient, asked: list[CompletionRequest]) -> None:
    lines = "".join(f"x = {number}\n" for number in range(30))
    post(client, "/infill", {"input_prefix": lines, "prompt": "y = ", "input_suffix": "\n", "n_predict": 1})
    post(client, "/v1/completions", {"prompt": lines + "y = ", "suffix": "\n", "max_tokens": 1, "session": "a.py"})
    assert [request.session for request in asked] == [ANONYMOUS, "http/a.py"]
    assert asked[0].prompt == asked[1].prompt
    assert asked[0].prompt.prefix + asked[0].prompt.increment == lines + "y = "
    assert asked[0].prompt.prefix.endswith("\n")
    assert asked[0].prompt.increment.count("\n") >= 8


def test_users_without_a_session_keep_their_prompts(client: TestClient) -> None:
    texts = [f"# {name}\n" + f"{name} = 1\n" * 20 for name in ("first", "second", "third")]
    for text in texts:
        post(client, "/infill", {"input_prefix": text, "input_suffix": "\n", "n_predict": 1})
    for text in texts:
        answer = post(client, "/infill", {"input_prefix": text, "prompt": "z", "input_suffix": "\n", "n_predict": 1})
        assert answer["timings"]["prompt_n"] <= 3


def test_client_with_too_much_in_line_is_told_when_to_try_again(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any, **_named: Any) -> int:
        raise Busy("this client already has 64 waiting requests")

    monkeypatch.setattr(Scheduler, "submit", refuse)
    response = client.post("/infill", json={}, headers=BEARER)
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")
    assert error_of(response)["code"] == "busy"


def test_fault_of_the_core_is_an_error_in_json_too(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: Any, **_named: Any) -> str:
        raise RuntimeError("boom")

    monkeypatch.setattr(Metrics, "render", fail)
    response = client.get("/metrics", headers=BEARER)
    assert response.status_code == 500
    assert "boom" in error_of(response)["message"]


def test_metrics_and_health(tiny_checkpoint: Path) -> None:
    with client_of(EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1)) as client:
        assert client.get("/health", headers=BEARER).json()["status"] == "unloaded"
        post(client, "/infill", {"input_prefix": "x", "n_predict": 2})
        post(client, "/infill", {"input_prefix": "y", "n_predict": 0})
        assert client.get("/health", headers=BEARER).json()["status"] == "ready"
        text = client.get("/metrics", headers=BEARER).text
    assert 'midfill_requests_total{kind="suggestion",outcome="completed"} 1.0' in text
    assert 'midfill_requests_total{kind="prefetch",outcome="completed"} 1.0' in text
    assert "midfill_model_loaded 1.0" in text
    assert 'midfill_resident_tokens{tier="device"}' in text


def test_model_that_cannot_be_loaded_is_reported(tmp_path: Path) -> None:
    with client_of(EngineOptions(str(tmp_path))) as client:
        response = client.post("/infill", json={"input_prefix": "x"}, headers=BEARER)
        assert response.status_code == 503
        assert "no config.json" in error_of(response)["message"]
        assert client.get("/health", headers=BEARER).status_code == 503
        assert client.get("/health").status_code == 200
