"""The last visits of one document, and the snippets cut around them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.context.document_sources import DocumentVisits
from lsp_server.context.proposals import SNIPPET_LINES, CutSnippet, cut, find_again
from lsp_server.documents.documents import Document, Edit, Position

LINES = "".join(f"line {n}\n" for n in range(300))


def document(text: str = LINES) -> Document:
    return Document.from_text("file:///w/a.py", "python", 1, text)


def edit(visits: DocumentVisits, start: tuple[int, int], end: tuple[int, int], text: str, sequence: int) -> None:
    change = visits.document.apply(Edit(Position(*start), Position(*end), text))
    visits.edited(change, sequence)


def snippet_at(source: Document, line: int, taken: list[range] | None = None, max_chars: int = 9999) -> CutSnippet:
    return cut(source, line, "a.py", max_chars, taken or [])


@pytest.mark.parametrize(
    ("lines", "remembered"),
    [
        ([10, 15, 100, 20, 102], [102, 20]),  # places nearby are one
        ([0, 50, 100, 150, 200, 250], [250, 200, 150, 100]),
        ([7000], [300]),  # behind the end
    ],
)
def test_few_places_are_remembered(lines: list[int], remembered: list[int]) -> None:
    visits = DocumentVisits(document())
    for sequence, line in enumerate(lines):
        visits.touch(line, sequence)
    assert [line for line, _ in visits.visits] == remembered
    assert visits.visits[0].touched == len(lines) - 1


def test_places_move_with_the_text() -> None:
    visits = DocumentVisits(document())
    visits.touch(200, 0)
    visits.touch(100, 1)
    edit(visits, (150, 0), (150, 0), "new\nlines\n", 2)
    assert visits.visits == ((152, 2), (100, 1), (202, 0))


def test_a_whole_new_text_is_no_visit() -> None:
    visits = DocumentVisits(document())
    visits.touch(200, 0)
    edit(visits, (0, 0), (300, 0), LINES.replace("line", "row"), 1)
    assert visits.visits == ((200, 0),)


def test_a_place_in_deleted_text_stays_in_the_document() -> None:
    visits = DocumentVisits(document())
    visits.touch(250, 0)
    edit(visits, (0, 0), (300, 0), "", 1)
    assert visits.visits == ((0, 1),)


def test_a_chunk_is_cut_around_its_line() -> None:
    snippet = snippet_at(document(), 100)
    assert len(snippet.lines) == SNIPPET_LINES
    assert snippet.span == range(80, 120)
    assert snippet.snippet.text == "".join(f"line {n}\n" for n in range(80, 120))


@pytest.mark.parametrize(
    ("line", "taken", "span"),
    [
        (0, [], range(40)),  # at an edge it reaches further inwards
        (299, [], range(261, 301)),
        (125, [range(80, 120)], range(120, 160)),
        (110, [range(80, 105), range(120, 160)], range(105, 120)),
    ],
)
def test_a_chunk_keeps_off_edges_and_what_is_taken(line: int, taken: list[range], span: range) -> None:
    assert snippet_at(document(), line, taken).span == span


@pytest.mark.parametrize(
    ("text", "line", "taken"),
    [
        ("", 0, []),
        ("\n\n\n", 0, []),
        ("    \n\t\n", 0, []),
        ("x" * 500, 0, []),  # over the budget
        (LINES, 106, [range(80, 105), range(108, 120)]),  # little is left between other chunks
    ],
)
def test_what_is_no_chunk(text: str, line: int, taken: list[range]) -> None:
    assert cut(document(text), line, "a.py", 400, taken) is None


def test_line_ends_are_those_that_models_know() -> None:
    assert snippet_at(document("a\r\nb\r\n"), 0).snippet.text == "a\nb\n"


def test_a_chunk_is_found_where_it_moved_to() -> None:
    source = document()
    snippet = snippet_at(source, 100)
    assert find_again(snippet, source) is snippet
    source.apply(Edit(Position(0, 0), Position(0, 0), "one\ntwo\nthree\n"))
    found = find_again(snippet, source)
    assert (found.first, found.snippet) == (83, snippet.snippet)


def test_a_chunk_that_was_edited_is_not_found() -> None:
    source = document()
    snippet = snippet_at(source, 100)
    source.apply(Edit(Position(119, 0), Position(119, 1), "L"))
    assert find_again(snippet, source) is None


@given(
    st.lists(st.sampled_from(["\n", "x\n", "    y = 1\n", "z" * 90 + "\n", "\r\n"]), min_size=1, max_size=120),
    st.integers(0, 119),
    st.integers(0, 1500),
    st.lists(st.integers(0, 119).map(lambda first: range(first, first + 7)), max_size=3),
)
def test_a_chunk_is_whole_free_lines_of_its_document(lines: list[str], at: int, max_chars: int, taken: list[range]) -> None:
    source = document("".join(lines))
    line = min(at, len(lines))
    if any(line in span for span in taken):
        return
    snippet = cut(source, line, "a.py", max_chars, taken)
    if snippet is not None:
        assert line in snippet.span
        assert snippet.chars <= max_chars
        assert len(snippet.lines) <= SNIPPET_LINES
        assert tuple(source.lines[snippet.span.start : snippet.span.stop]) == snippet.lines
        assert not any(taken_line in snippet.span for span in taken for taken_line in span)
        assert find_again(snippet, source) is snippet
