"""Whether a place is in a comment or a string, also after edits."""

import pytest

from lsp_server.documents.lexing import auto_closed_length, is_auto_closed, open_brackets


@pytest.mark.parametrize(
    ("text", "wanted"), [("", []), ("f(a[1], {", [")", "}"]), ("f(a)", []), ("a) + (b", [")"]), ("([)", [")", "]"])]
)
def test_open_brackets(text: str, wanted: list[str]) -> None:
    assert open_brackets(text) == wanted


@pytest.mark.parametrize(
    ("before", "after", "length"),
    [
        ("f(", ")", 1),
        ("f(a", ") + 1", 1),
        ("f(a[", "])", 2),
        ("f(a", "b)", 0),
        ("x = 1", ")", 0),  # nothing of this increment wants it
        ('s = "', '"', 1),
        ('f("', '")', 2),
        ('s = "a"', '"', 0),
        ("if x {\n    ", "\n}", 2),
        ("if x {\n    y();\n", "}\n", 1),
        ("f(", "  ", 0),
        ("f((", ") tail)", 1),
        ("f(g(h(a", "))) + 1", 3),
        ('"""', '"""', 3),
        ('"""Do.\n\n    ', '\n    """\n', 8),
        ('"""Do."""', '"""', 0),
        ("f(a[", ") + 1", 1),  # the inner one is still to be typed
        ("if x {\n    f(", "\n}", 2),
        ("if x {\n    f(", "}\n)", 1),  # the outer one was closed, and the inner one cannot be any more
    ],
)
def test_auto_closed_length(before: str, after: str, length: int) -> None:
    assert auto_closed_length(before, after) == length


@pytest.mark.parametrize(
    ("before", "gap", "expected"),
    [("f(", ")", True), ("f(", ")  \n", True), ("x", " \n", True), ("f(", "a)", False), ("x", ")", False)],
)
def test_is_auto_closed(before: str, gap: str, expected: bool) -> None:
    assert is_auto_closed(before, gap) is expected
