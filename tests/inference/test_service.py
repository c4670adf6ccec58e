from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient, WebSocketTestSession
from starlette.testclient import WebSocketDenialResponse as Denied

from inference.engine_holder import EngineHolder
from inference.loading import EngineOptions, load_engine
from inference.metrics import Metrics
from inference.presence import Presence
from inference.scheduler import Scheduler
from inference.service import make_app
from protocol.messages import CompletionRequest, Prompt
from protocol.wire import (
    Cancel,
    ClientMessage,
    Complete,
    Completed,
    CoreMessage,
    Failed,
    Forget,
    StatusChanged,
    decode_core,
    encode,
)

TOKEN = "secret"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def scheduler_and_client(tiny_checkpoint: Path) -> Iterator[tuple[Scheduler, TestClient]]:
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1)
    presence, metrics = Presence(), Metrics()
    holder = EngineHolder("tiny", lambda progress: load_engine(options, progress), presence.announce)
    scheduler = Scheduler(holder, observe=metrics.observe)
    with TestClient(make_app(scheduler, presence, metrics, TOKEN, ["https://allowed.example"])) as client:
        yield scheduler, client
    scheduler.close()


@pytest.fixture
def client(scheduler_and_client: tuple[Scheduler, TestClient]) -> TestClient:
    return scheduler_and_client[1]


def send(websocket: WebSocketTestSession, message: ClientMessage) -> None:
    websocket.send_text(encode(message))


def receive(websocket: WebSocketTestSession) -> CoreMessage:
    """The next message that is not a change of status."""
    while isinstance(message := decode_core(websocket.receive_text()), StatusChanged):
        pass
    return message


def request(text: str = "x", max_tokens: int = 4, session: str = "a.py") -> CompletionRequest:
    return CompletionRequest(session, Prompt("def f():\n", "\n", text), max_tokens)


def test_websocket_answers_and_reports_its_status(client: TestClient) -> None:
    with client.websocket_connect("/ws", headers=BEARER) as websocket:
        first = decode_core(websocket.receive_text())
        assert isinstance(first, StatusChanged)
        assert (first.status.state, first.status.model, first.protocol_version) == ("unloaded", "tiny", 1)
        send(websocket, Complete(7, request()))
        states = []
        while isinstance(message := decode_core(websocket.receive_text()), StatusChanged):
            states.append(message.status.state)
            last = message.status
        assert set(states) == {"loading", "ready"}
        assert states[-1] == "ready"
        assert (last.device, last.context_tokens) == ("cpu", 512)
        assert last.chars_per_token > 1
        assert isinstance(message, Completed)
        assert message.id == 7
        assert message.completion.usage.recomputed_tokens == message.completion.usage.prompt_tokens
        send(websocket, Complete(8, request("xy")))
        answer = receive(websocket)
        assert isinstance(answer, Completed)
        assert answer.completion.usage.recomputed_tokens <= 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "not a midfill message"),
        ("{}", "not a midfill message"),
        ('{"type": "Complete", "id": 1}', "request"),
        ('{"type": "Complete", "id": 1, "request": {"session": 5}}', "session"),
        ('{"type": "Nonsense"}', "Nonsense"),
        ("[]", "not a midfill message"),
        ("[" * 100_000, "not a midfill message"),
        (b"\x00", "binary frame"),
    ],
)
def test_malformed_message_is_answered_and_the_connection_kept(
    client: TestClient, text: str | bytes, message: str
) -> None:
    with client.websocket_connect("/ws", headers=BEARER) as websocket:
        websocket.send({"type": "websocket.receive", "text" if isinstance(text, str) else "bytes": text})
        answer = receive(websocket)
        assert isinstance(answer, Failed)
        assert (answer.id, answer.code) == (None, "bad_input")
        assert message in answer.message
        send(websocket, Complete(1, request()))
        assert isinstance(receive(websocket), Completed)


def test_bad_request_fails_alone(client: TestClient) -> None:
    with client.websocket_connect("/ws", headers=BEARER) as websocket:
        send(websocket, Complete(1, request(max_tokens=-1)))
        answer = receive(websocket)
        assert isinstance(answer, Failed)
        assert (answer.id, answer.code) == (1, "bad_input")
        send(websocket, Complete(2, request(text="\ud800")))
        assert isinstance(receive(websocket), Completed)


def test_superseded_and_cancelled_requests_are_answered_once(client: TestClient) -> None:
    with client.websocket_connect("/ws", headers=BEARER) as websocket:
        for number in range(10):
            send(websocket, Complete(number, request("x" * number, max_tokens=100)))
        send(websocket, Complete(10, request("z", session="b.py")))
        send(websocket, Cancel(10))
        send(websocket, Cancel(99))
        send(websocket, Forget("c.py"))
        answers = {}
        for _ in range(11):
            answer = receive(websocket)
            assert isinstance(answer, Completed | Failed)
            assert answer.id not in answers
            answers[answer.id] = answer
        assert set(answers) == set(range(11))
        assert isinstance(answers[9], Completed)
        assert {answer.code for answer in answers.values() if isinstance(answer, Failed)} <= {"cancelled"}


def test_two_connections_do_not_supersede_each_other(client: TestClient) -> None:
    with (
        client.websocket_connect("/ws", headers=BEARER) as one,
        client.websocket_connect("/ws", headers=BEARER) as two,
    ):
        send(one, Complete(1, request("one")))
        send(two, Complete(1, request("two")))
        assert isinstance(receive(one), Completed)
        assert isinstance(receive(two), Completed)


def test_disconnect_cancels(scheduler_and_client: tuple[Scheduler, TestClient]) -> None:
    scheduler, client = scheduler_and_client
    with client.websocket_connect("/ws", headers=BEARER) as websocket:
        send(websocket, Complete(1, request(max_tokens=400)))
        decode_core(websocket.receive_text())
    metrics = client.get("/metrics", headers=BEARER).text
    assert "midfill_connections 0" in metrics
    scheduler.close()
    metrics = client.get("/metrics", headers=BEARER).text
    assert 'midfill_requests_total{kind="suggestion",outcome="cancelled"} 1' in metrics


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
    with pytest.raises(Denied) as refused, client.websocket_connect("/ws", headers=headers):
        pass
    assert refused.value.status_code == status
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


def test_allowed_origin_may_connect(client: TestClient) -> None:
    headers = {**BEARER, "Origin": "https://allowed.example"}
    with client.websocket_connect("/ws", headers=headers) as websocket:
        assert isinstance(decode_core(websocket.receive_text()), StatusChanged)


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
    with TestClient(make_app(scheduler, presence, metrics, TOKEN)) as client:
        response = client.post("/infill", json={"input_prefix": "x"}, headers=BEARER)
        assert response.status_code == 503
        assert "no config.json" in response.json()["error"]["message"]
        assert client.get("/health", headers=BEARER).status_code == 503
        with client.websocket_connect("/ws", headers=BEARER) as websocket:
            send(websocket, Complete(1, request()))
            answer = receive(websocket)
            assert isinstance(answer, Failed)
            assert answer.code == "bad_model"
    scheduler.close()
