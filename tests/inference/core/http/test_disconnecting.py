"""A client that disconnects ends its request at once, counted in forwards."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference.core.scheduler import Scheduler
from inference.engine.engine import Engine
from inference.engine.request import Request
from inference.loading.options import EngineOptions
from protocol.errors import Cancelled, MidfillError
from tests.inference.core.http.calls import AFTER, BEFORE
from tests.inference.serving import BEARER, Served, serving

PATIENCE_S = 60.0
AFTER_FORWARDS = 3
TOKENS = 200


class Watched:
    """Counts an engine's forwards, and holds it after AFTER_FORWARDS until something is cancelled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.forwards = 0
        self.reached = threading.Event()
        self.cancelled = threading.Event()
        self.answered_requests: list[Request] = []
        self.answered = threading.Event()
        step, cancel = Engine.step, Scheduler.cancel

        def counted(engine: Engine) -> list[Request]:
            self.forwards += 1
            if self.forwards == AFTER_FORWARDS:
                self.reached.set()
                assert self.cancelled.wait(PATIENCE_S)
            return step(engine)

        def cancelling(scheduler: Scheduler, request: Request) -> None:
            cancel(scheduler, request)
            self.cancelled.set()

        monkeypatch.setattr(Engine, "step", counted)
        monkeypatch.setattr(Scheduler, "cancel", cancelling)

    def observe(self, request: Request) -> None:
        self.answered_requests.append(request)
        self.answered.set()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


@pytest.fixture
def served(tiny_checkpoint: Path, watched: Watched) -> Iterator[Served]:
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1, speculation=False)
    with serving(options, observe=watched.observe) as served:
        yield served


@pytest.mark.parametrize(
    ("path", "limit", "stream"),
    [
        ("/v1/completions", "max_tokens", False),
        ("/v1/completions", "max_tokens", True),
        ("/infill", "n_predict", False),
        ("/infill", "n_predict", True),
        ("/api/generate", "", True),
    ],
)
def test_no_forward_follows_a_disconnection(served: Served, watched: Watched, path: str, limit: str, stream: bool) -> None:
    names = ("input_prefix", "input_suffix") if path == "/infill" else ("prompt", "suffix")
    body = dict(zip(names, (BEFORE, AFTER), strict=True)) | {"stream": stream}
    body |= {limit: TOKENS} if limit else {"options": {"num_predict": TOKENS}}
    connection = http.client.HTTPConnection(served.address, timeout=PATIENCE_S)
    connection.request("POST", path, json.dumps({**body, "stream": stream}), BEARER)
    if stream:
        response = connection.getresponse()
        assert response.read1(1)  # text has come
    assert watched.reached.wait(PATIENCE_S)
    if stream:
        response.close()
    connection.close()
    assert watched.answered.wait(PATIENCE_S)
    outcome = watched.answered_requests[0].outcome
    assert isinstance(outcome, Cancelled)
    assert watched.forwards <= AFTER_FORWARDS + 1


def test_error_in_a_stream_ends_it_as_an_event(served: Served, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_engine: Engine) -> list[Request]:
        raise MidfillError("out of order")

    connection = http.client.HTTPConnection(served.address, timeout=PATIENCE_S)
    body = {"prompt": BEFORE, "max_tokens": TOKENS, "stream": True}
    connection.request("POST", "/v1/completions", json.dumps(body), BEARER)
    response = connection.getresponse()
    assert (response.status, bool(response.read1(1))) == (200, True)
    assert watched.reached.wait(PATIENCE_S)
    monkeypatch.setattr(Engine, "step", fail)
    watched.cancelled.set()
    *_, last, empty = response.read().decode().split("\n\n")
    assert (json.loads(last.removeprefix("data: "))["error"]["code"], empty) == ("internal", "")
    connection.close()


def test_requests_after_a_disconnection_are_answered(served: Served, watched: Watched) -> None:
    watched.cancelled.set()
    connection = http.client.HTTPConnection(served.address, timeout=PATIENCE_S)
    for _ in range(2):  # on one connection
        body = {"prompt": BEFORE, "max_tokens": 3, "stream": True}
        connection.request("POST", "/v1/completions", json.dumps(body), BEARER)
        assert connection.getresponse().read().endswith(b"data: [DONE]\n\n")
    assert all(request.result == "completed" for request in watched.answered_requests)
    connection.close()
