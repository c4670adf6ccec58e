"""What the APIs ask the scheduler for."""

from __future__ import annotations

from typing import Any

import pytest

from inference.scheduling.scheduler import Scheduler
from protocol.messages import CompletionRequest


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
