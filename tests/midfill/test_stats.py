"""`midfill stats`, as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from lsp_server.usage.statistics import Statistics, add_to_file, one_answer, statistics_file
from midfill.commands import app


@pytest.fixture(autouse=True)
def _own_statistics() -> Iterator[None]:
    statistics_file().unlink(missing_ok=True)
    yield
    statistics_file().unlink(missing_ok=True)


def test_text() -> None:
    more = Statistics(shown=10, accepted=3, accepted_partly=1, watched_characters=100, kept_characters=75)
    add_to_file(statistics_file(), more + one_answer(7.0))
    shown = CliRunner().invoke(app, ["stats"]).stdout
    assert "40%" in shown
    assert "75%" in shown
    assert "p95, ms, at most" in shown
    assert "statistics.sqlite" in shown


def test_json() -> None:
    add_to_file(statistics_file(), Statistics(shown=1) + one_answer(7.0))
    numbers = json.loads(CliRunner().invoke(app, ["stats", "--json"]).stdout)
    assert (numbers["shown"], numbers["kept_share"], numbers["answers_by_ms"]["10"]) == (1, None, 1)
    assert numbers["time_to_suggestion_ms"] == {"p50": 10, "p95": 10, "p99": 10}


def test_before_anything_was_shown() -> None:
    assert "suggestions shown" in CliRunner().invoke(app, ["stats"]).stdout
