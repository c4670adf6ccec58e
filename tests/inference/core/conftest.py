"""What the APIs ask the scheduler for."""

from __future__ import annotations

import pytest

from inference.core.scheduler import Scheduler
from inference.engine.request import Request
from protocol.messages import CompletionRequest


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[CompletionRequest]:
    """What the scheduler is asked for."""
    requests: list[CompletionRequest] = []
    submit = Scheduler.submit

    def watched(self: Scheduler, request: Request) -> None:
        requests.append(request.spec)
        submit(self, request)

    monkeypatch.setattr(Scheduler, "submit", watched)
    return requests
