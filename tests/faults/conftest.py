"""The table of what the attacks measured, behind the tests."""

from __future__ import annotations

import pytest

from tests.faults.attacked import ROWS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not ROWS:
        return
    rows = [("what", "bound", "measured"), *ROWS]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    terminalreporter.section("attacks")
    for row in rows:
        terminalreporter.line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
