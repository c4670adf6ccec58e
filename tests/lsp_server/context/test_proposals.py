"""Snippets that are cut of proposals, and found again after edits."""

import pytest

from lsp_server.context.proposals import CutSnippet, TextProposal, find_again
from lsp_server.documents.documents import Document, Edit, Position

LINES = [f"line {n}\n" for n in range(300)]


def proposal(*lines: str, first: int = 0, shown: str = "") -> TextProposal:
    return TextProposal("file:///w/a.py", "similar", 1.0, first, lines, shown)


def snippet_at(first: int) -> CutSnippet:
    snippet = proposal(*LINES[first : first + 40], first=first).cut("a.py", 9999, ())
    assert snippet is not None
    return snippet


@pytest.mark.parametrize(
    ("proposed", "taken"),
    [
        (proposal(""), []),
        (proposal("    \n", "\t\n"), []),
        (proposal("x" * 500), []),  # over the budget
        (proposal(*LINES[10:14], first=10), [range(5, 11)]),  # another snippet has one of its lines
    ],
)
def test_what_is_no_snippet(proposed: TextProposal, taken: list[range]) -> None:
    assert proposed.cut("a.py", 400, taken) is None


def test_line_ends_are_those_that_models_know() -> None:
    snippet = proposal("a\r\n", "b\r\n").cut("a.py", 99, ())
    assert snippet is not None
    assert snippet.snippet.text == "a\nb\n"


def test_what_is_shown_may_differ_from_the_lines() -> None:
    snippet = proposal("def a(b):\n", shown="def a(b): ...\n").cut("a.py", 99, [range(5)])
    assert snippet is not None
    assert (snippet.snippet.text, snippet.is_verbatim) == ("def a(b): ...\n", False)


def test_a_snippet_is_found_where_it_moved_to_and_not_once_it_was_edited() -> None:
    source = Document.from_text("file:///w/a.py", "python", 1, "".join(LINES))
    snippet = snippet_at(80)
    assert find_again(snippet, source) is snippet
    source.apply(Edit(Position(0, 0), Position(0, 0), "one\ntwo\nthree\n"))
    found = find_again(snippet, source)
    assert found is not None
    assert (found.first, found.snippet) == (83, snippet.snippet)
    source.apply(Edit(Position(122, 0), Position(122, 1), "L"))
    assert find_again(snippet, source) is None
