"""Where suggestions end, by what surrounds the cursor `║` on its line."""

from __future__ import annotations

import pytest

from lsp_server.stop_rules import indentation, stop_rule
from protocol.messages import StopRule

LINE = StopRule()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("║", StopRule(indent=0)),
        ("    ║", StopRule(indent=4)),
        ("\t\t║", StopRule(indent=8)),
        ("  \t║  ", StopRule(indent=4)),
        ("def f(x):║", StopRule(indent=1)),
        ("    if x:  ║", StopRule(indent=5)),
        ("fn main() {║", StopRule(indent=1)),
        ("\tcall(║", StopRule(indent=5)),
        ("const f = x =>║", StopRule(indent=1)),
        ("x = ║", LINE),
        ("return║", LINE),
        ("foo(║)", LINE),
        ("x = ║ + 1", LINE),
        ("    ║)", LINE),
        ("if x:║  # why", LINE),
    ],
)
def test_stop_rule(line: str, expected: StopRule) -> None:
    before, after = line.split("║")
    assert stop_rule(before, after, multi_line=True) == expected
    assert stop_rule(before, after, multi_line=False) == LINE


@pytest.mark.parametrize(("line", "columns"), [("", 0), ("  x", 2), ("\tx", 4), (" \tx", 4), ("\t x", 5), ("   ", 3)])
def test_indentation(line: str, columns: int) -> None:
    assert indentation(line) == columns
