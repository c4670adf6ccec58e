"""The requests of editors' clients over editing sessions: how many of their tokens are computed again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from inference.engine.request import Request
from inference.loading.engine import load_dry_engine
from inference.loading.options import EngineOptions
from midfill.replay.trace import play, read_trace
from protocol.messages import Usage, cache_outcome
from tests.inference.core.http.recorded_clients import CLIENTS, RecordedClient, recorded
from tests.inference.serving import BEARER, client_of

OPTIONS = EngineOptions(healing="off", slots=2)
TRACE = Path(__file__).parents[3] / "data" / "rustcode-3000-3400.json.gz"
TYPED = "    for name in &names {\n        found.push"
SLACK_TOKENS = 3

Ask = Callable[[str, int], Usage]


@pytest.fixture(params=CLIENTS)
def ask(request: pytest.FixtureRequest) -> Iterator[Ask]:
    """Asks as the client does, for a cursor in a document; what it cost."""
    client: RecordedClient = recorded(request.param)
    usages: list[Usage] = []

    def observe(request: Request) -> None:
        usages.append(request.completion().usage)

    with client_of(OPTIONS, observe, dry=True) as core:
        yield lambda text, offset: _ask(core, client.path, client.body_at(text, offset), usages)


def _ask(core: TestClient, path: str, body: dict[str, Any], usages: list[Usage]) -> Usage:
    response = core.post(path, json=body, headers=BEARER)
    assert response.status_code == 200, response.text
    return usages[-1]


def test_typing_recomputes_what_is_typed(ask: Ask) -> None:
    """Letter by letter in the middle of a long document, whose window moves with the cursor."""
    trace = read_trace(TRACE)
    text = trace.start
    offset = text.rfind("\n", 0, len(text) // 2) + 1
    costs = []
    for number in range(len(TYPED) + 1):
        typed = text[:offset] + TYPED[:number] + text[offset:]
        costs.append(ask(typed, offset + number).recomputed_tokens)
    cold = [number for number, cost in enumerate(costs) if cost > SLACK_TOKENS]
    assert len(cold) <= 3, costs  # the first, and where the client's window first moves


def test_recorded_session_hits_where_it_types(ask: Ask) -> None:
    trace = read_trace(TRACE)
    count_tokens = load_dry_engine(OPTIONS).tokenizer.count_tokens
    outcomes = []
    for step in play(trace, limit=50):
        lines = step.text.splitlines(keepends=True)
        offset = sum(map(len, lines[: step.cursor.line])) + step.cursor.column
        usage = ask(step.text, offset)
        if step.moved_to is None:
            inserted = sum(map(count_tokens, step.inserted))
            outcomes.append(cache_outcome(usage, inserted))
    assert len(outcomes) > 35
    assert outcomes.count("hit") >= 0.95 * len(outcomes), outcomes
