"""Requests at an engine without a scheduler."""

from __future__ import annotations

from typing import Any

from inference.engine.interface import AnyEngine
from inference.engine.request import Request
from protocol.messages import Completion, CompletionRequest


def begin(engine: AnyEngine, spec: CompletionRequest, client: str = "", **fields: Any) -> Request:
    """The request, which is now at work, unless it needed no forward."""
    request = Request(spec, client, **fields)
    engine.begin(request)
    return request


def finish(engine: AnyEngine, *requests: Request) -> list[Completion]:
    while not all(request.has_ended for request in requests):
        engine.step()
    return [request.completion() for request in requests]


def complete_cancelled(engine: AnyEngine, spec: CompletionRequest, steps: int) -> Completion:
    """The completion of a request that is cancelled after so many steps, unless it ended before."""
    request = begin(engine, spec)
    for _ in range(steps):
        if request.has_ended:
            break
        engine.step()
    request.cancelled = True
    return finish(engine, request)[0]
