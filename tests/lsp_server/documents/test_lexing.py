"""Whether a place is in a comment or a string, also after edits."""

import pytest

from lsp_server.documents.documents import Document, Edit, Position
from lsp_server.documents.lexing import Literals, auto_closed_length, is_auto_closed, open_brackets


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


def literals(text: str, language: str = "python") -> tuple[Literals, Document]:
    document = Document.from_text("file:///a", language, 1, text)
    return Literals(document), document


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("python", "x = 1║", None),
        ("python", "x = 1  # see║", "comments"),
        ("python", "# see\n║", None),
        ("python", "x = 'a║'", "strings"),
        ("python", "x = 'a'║", None),
        ("python", "x = 'a\\║'", "strings"),
        ("python", "x = '# a║", "strings"),
        ("python", 'def f():\n    """Say\n    it║"""', "strings"),
        ("python", 'def f():\n    """Say\n    it."""\n    return ║', None),
        ("typescript", "/* a\n * b║", "comments"),
        ("typescript", "`a\n${b}║", "strings"),
        ("typescript", "/* a */ ║", None),
        ("rust", "fn f<'a>(x: &'a str) { ║", None),
        ("rust", 'let x = "a // b║', "strings"),
        ("markdown", "# Title║", None),
    ],
)
def test_a_place(language: str, text: str, expected: str | None) -> None:
    before = text[: text.index("║")]
    found, document = literals(text.replace("║", ""), language)
    line = before.count("\n")
    assert found.at(Position(line, len(before.rpartition("\n")[2]))) == expected
    assert document.version == 1


def test_edits_above_open_and_close_what_follows() -> None:
    found, document = literals("a\n" * 10)
    here = Position(9, 1)

    def edit(start: Position, end: Position, text: str) -> None:
        found.edited(document.apply(Edit(start, end, text)).first)

    assert found.at(here) is None
    edit(Position(2, 0), Position(2, 0), '"""')
    assert found.at(here) == "strings"
    edit(Position(4, 0), Position(4, 0), '"""')
    assert found.at(here) is None
    edit(Position(2, 0), Position(2, 3), "")
    assert found.at(here) == "strings"
    assert found.at(Position(3, 1)) is None


def test_places_may_come_in_any_order() -> None:
    found, document = literals("a\n" * 20)
    for line in (10, 12, 5, 13, 14):
        assert found.at(Position(line, 0)) is None
    found.edited(document.apply(Edit(Position(6, 0), Position(6, 0), '"""')).first)
    assert found.at(Position(11, 0)) == "strings"
