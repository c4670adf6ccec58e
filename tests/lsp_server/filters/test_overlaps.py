"""Nothing is said twice."""

from __future__ import annotations

import pytest

from lsp_server.filters.overlaps import cut_at_next_lines, drop_rest_of_line
from tests.lsp_server.filters.golden import filtered, suggested


@pytest.mark.parametrize(
    ("marked", "text", "expected"),
    [
        ("f(║, b)", "a, b)", "f(⟦a⟧, b)"),
        ("x = ║ + 1", "2 + 1", "x = ⟦2⟧ + 1"),
        ("x = ║+ 1", "2 + 1", "x = ⟦2 ⟧+ 1"),
        ("x = ║;", "f();", "x = ⟦f()⟧;"),
        ("re║turn x", "turn x", "re║turn x"),
        ("return ║foo(x)", "bar(foo(x))", "return ⟦bar(⟧foo(x)"),
        ("f(║, b)", "a,", "f(⟦a⟧, b)"),
        # whole words alone
        ("return ║total", "self.subtotal + ", "return ⟦self.subtotal + ⟧total"),
        ("x = ║value", "default_value or ", "x = ⟦default_value or ⟧value"),
        ("f(║n)", "len", "f(⟦len⟧n)"),
        # no overlap
        ("x = ║ + 1", "2", "x = ⟦2⟧ + 1"),
        ("x = ║", "2", "x = ⟦2⟧"),
    ],
)
def test_the_rest_of_the_line_is_not_said_again(marked: str, text: str, expected: str) -> None:
    assert filtered(drop_rest_of_line, marked, text) == expected


@pytest.mark.parametrize(
    ("language", "marked", "text", "expected"),
    [
        # a tag or a word that closes what the text has opened
        ("html", "<div>║</div>", '<div class="a">hi</div>', '<div>⟦<div class="a">hi</div>⟧</div>'),
        ("html", "<div>║</div>", '<div class="a">hi</div></div>', '<div>⟦<div class="a">hi</div>⟧</div>'),
        ("html", "<div>║</div>", "<br/>hi</div>", "<div>⟦<br/>hi⟧</div>"),
        ("html", "<b>║</b>", "<b/></b>", "<b>⟦<b/>⟧</b>"),
        ("html", "<p>║</p>", "hi</p>", "<p>⟦hi⟧</p>"),
        ("lua", "f = function() ║ end", "if x then y() end", "f = function() ⟦if x then y() end⟧ end"),
        ("lua", "f = function() ║ end", "y() end", "f = function() ⟦y()⟧ end"),
        # behind a closer that the text replaces
        ("html", '<div class="║"></div>', 'a">hello</div>', '<div class="⟦a">hello</div>⟧'),
        ("html", '<div class="║"></div>', 'a"></div>', '<div class="⟦a⟧"></div>'),
        ("python", "y = foo(║) if value", "value if value else 0).strip()", "y = foo(⟦value⟧) if value"),
        ("python", "f(║) + total", "x) + total", "f(⟦x⟧) + total"),
        ("python", "f(║) + total", "x + total)", "f(⟦x⟧) + total"),
    ],
)
def test_with_all_filters_the_rest_stands_once(language: str, marked: str, text: str, expected: str) -> None:
    assert suggested(marked, text, language) == expected


@pytest.mark.parametrize(
    ("marked", "text", "inserted"),
    [
        ("def f():\n    ║\n    return x\n", "x = 1\n    return x", "x = 1"),
        ("def f():\n    ║\n    return x\n", "return x", ""),
        ("def f():\n    ║\n\n    return x\n", "x = 1\n\n    return x", "x = 1\n"),
        ("║\na = 1\nb = 2\nc = 3\nd = 4\n", "a = 1\nb = 2\nc = 3\nd = 5", ""),  # several lines are no coincidence
        # lines that say little count where the suggestion goes on as the document does
        ("if a:\n    b()\n║\nelse:\n    c()\n", "else:\n    c()", ""),
        ("f(\n    a,\n    ║\n)\nx = 1\n", "b,\n)\nx = 1", "b,"),
        # another depth, another line, one that goes on otherwise, the beginning of a longer one
        ("if a:\n    ║\nreturn x\n", "return x", "return x"),
        ("x = ║\ny = 2\n", "1", "1"),
        ("║\n<div>\n  <p>a</p>\n</div>\n", "<div>\n  <b>c</b>\n</div>", "<div>\n  <b>c</b>\n</div>"),
        ("║\nimport os.path\n", "import os", "import os"),
        ("║\n- id: 30\n", "- id: 3", "- id: 3"),
        # a closing line, a line that the user has begun, and one of several that are equal
        ("  </div>\n║\n</div>\n", "</div>", "</div>"),
        ("x = f(║\nx = f(1)\n", "1)", "1)"),
        ("  <td></td>\n  ║\n  <td></td>\n", "<td></td>", "<td></td>"),
    ],
)
def test_the_next_lines_are_not_said_again(marked: str, text: str, inserted: str) -> None:
    assert filtered(cut_at_next_lines, marked, text) == marked.replace("║", f"⟦{inserted}⟧" if inserted else "║")


def test_the_beginning_of_the_next_line_repeats_it_where_the_text_was_cut() -> None:
    marked = "def f():\n    ║\n    return x\n"
    assert filtered(cut_at_next_lines, marked, "x = 1\n    retu", is_cut=True) == marked.replace("║", "⟦x = 1⟧")
    assert filtered(cut_at_next_lines, marked, "retu", is_cut=True) == marked
