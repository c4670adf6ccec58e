"""Where suggestions end, by what surrounds the cursor `║` on its line."""

from __future__ import annotations

import pytest

from lsp_server.filters.stop_rules import stop_rule
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
    assert stop_rule(before, after, "", multi_line=True) == expected
    assert stop_rule(before, after, "", multi_line=False) == LINE


@pytest.mark.parametrize(
    ("language", "line", "expected"),
    [
        ("python", "def f(x):║", StopRule(indent=1)),
        ("python", "x = {a:║", LINE),
        ("python", "x: dict = {║", StopRule(indent=1)),
        ("typescript", "let x:║", LINE),
        ("typescript", "f(() =>║", StopRule(indent=1)),
        ("rust", "fn f() ->║", LINE),
        ("rust", "fn f() {║", StopRule(indent=1)),
        ("go", "case x:║", LINE),
        ("c", "if (x) {║", StopRule(indent=1)),
    ],
)
def test_what_opens_a_block_depends_on_the_language(language: str, line: str, expected: StopRule) -> None:
    before, after = line.split("║")
    assert stop_rule(before, after, language, multi_line=True) == expected
