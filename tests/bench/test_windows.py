from __future__ import annotations

from tests.bench.conftest import TRACE, Figures


def test_memory_is_listed_of_every_process_and_nothing_fails(figures: Figures) -> None:
    short = ("--windows", "2", "--minutes", "0.1", "--turn", "2", "--rest", "1", "--model", "tiny")
    found = figures("windows.py", TRACE, *short)
    assert found["keys"] >= found["answered"] > 0
    assert found["failures"] == []
    assert sorted(process["name"] for process in found["processes"]) == ["core", "language server", "language server"]
    assert all(process["most_mb"] >= process["first_mb"] > 0 for process in found["processes"])
