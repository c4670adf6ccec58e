from __future__ import annotations

from typing import Any

from tests.bench.conftest import TRACE, Figures

SHORT = ("--typists", "3", "--warm-up", "1", "--seconds", "6", "--keys-per-second", "10")


def run_team(figures: Figures, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = figures("team.py", TRACE, *SHORT, *options)
    assert found["requests"] == found["answered"] + found["overtaken"]
    assert (found["lost"], found["failures"]) == (0, {})
    assert found["fairness"] >= 1
    return found


def test_all_are_answered_beside_a_flood_and_a_client_that_never_reads(figures: Figures) -> None:
    found = run_team(figures, "--flood", "--silent-reader")
    assert found["typists_without_an_answer"] == 0
    assert 0 <= found["hit_share"] <= 1
