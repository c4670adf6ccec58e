from __future__ import annotations

import pytest

from lsp_server.manners.balance import closes_unopened, faults


@pytest.mark.parametrize(
    ("language", "text", "closers", "strings"),
    [
        ("python", "f(a[1])", 0, 0),
        ("python", "f(a))", 1, 0),
        ("python", "f(a]", 1, 0),
        ("python", "{f(a}", 0, 0),  # reaches past what was left open
        ("python", "'(' # )", 0, 0),
        ("python", '"""\n)\n"""', 0, 0),
        ("python", '"""\n)', 0, 1),
        ("python", "x = 'a", 0, 1),
        ("python", "'", 0, 1),
        ("rust", "'a '(' \"b", 0, 1),
        ("typescript", "`\n)` // )", 0, 0),
        ("c", "/* ) */ '\\'' )", 1, 0),
        ("made-up", "it's ok :)", 1, 0),
    ],
)
def test_faults(language: str, text: str, closers: int, strings: int) -> None:
    assert faults(text, language) == (closers, strings)


@pytest.mark.parametrize(("text", "place"), [("f(a)", None), ("a)", 1), ("(a))", 3), ("')'", None), ("{(}", None)])
def test_closes_unopened(text: str, place: int | None) -> None:
    assert closes_unopened(text, "python") == place
