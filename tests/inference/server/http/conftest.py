"""A core of a tiny model, as the HTTP APIs' tests ask it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from inference.loading.options import EngineOptions
from inference.scheduling.scheduler import Scheduler
from protocol.messages import CompletionRequest
from tests.inference.serving import BEARER, client_of
from tests.inference.tiny import write_checkpoint


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    checkpoint = write_checkpoint(tmp_path_factory.mktemp("tiny"), max_position_embeddings=2048)
    with client_of(EngineOptions(str(checkpoint), context_tokens=2048, threads=1, slots=4)) as client:
        client.headers.update(BEARER)
        yield client


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[CompletionRequest]:
    """What the scheduler is asked for."""
    requests: list[CompletionRequest] = []
    submit = Scheduler.submit

    def watched(self: Scheduler, request: CompletionRequest, *arguments: Any, **named: Any) -> int:
        requests.append(request)
        return submit(self, request, *arguments, **named)

    monkeypatch.setattr(Scheduler, "submit", watched)
    return requests
