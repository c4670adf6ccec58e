"""The last visits of one document, and the snippets cut around them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.context.cutting import SNIPPET_LINES, CutSnippet, cut, find_again
from lsp_server.context.visits import DocumentVisits
from lsp_server.editing.documents import Document, Edit, Position

LINES = "".join(f"line {n}\n" for n in range(300))


def document(text: str = LINES) -> Document:
    return Document.from_text("file:///w/a.py", "python", 1, text)


def edit(visits: DocumentVisits, start: tuple[int, int], end: tuple[int, int], text: str, sequence: int) -> None:
    change = visits.document.apply(Edit(Position(*start), Position(*end), text))
    visits.edited(change, sequence)


def snippet_at(source: Document, line: int, taken: list[range] | None = None, max_chars: int = 9999) -> CutSnippet:
    snippet = cut(source, line, "a.py", max_chars, taken or [])
    assert snippet is not None
    return snippet


def test_places_nearby_are_one() -> None:
    visits = DocumentVisits(document())
    for sequence, line in enumerate([10, 15, 100, 20, 102]):
        visits.touch(line, sequence)
    assert visits.visits == ((102, 4), (20, 3))


def test_few_places_are_remembered() -> None:
    visits = DocumentVisits(document())
    for sequence in range(6):
        visits.touch(sequence * 50, sequence)
    assert [line for line, _ in visits.visits] == [250, 200, 150, 100]


def test_a_line_behind_the_end_is_the_last() -> None:
    visits = DocumentVisits(document("only\n"))
    visits.touch(7, 0)
    assert visits.visits == ((1, 0),)


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


def test_a_chunk_at_an_edge_reaches_further_inwards() -> None:
    assert snippet_at(document(), 0).span == range(40)
    assert snippet_at(document(), 299).span == range(261, 301)


def test_a_chunk_keeps_off_what_is_taken() -> None:
    assert snippet_at(document(), 125, [range(80, 120)]).span == range(120, 160)
    assert snippet_at(document(), 110, [range(80, 105), range(120, 160)]).span == range(105, 120)


def test_little_left_between_chunks_is_not_worth_it() -> None:
    assert cut(document(), 106, "a.py", 9999, [range(80, 105), range(108, 120)]) is None


@pytest.mark.parametrize("text", ["", "\n\n\n", "    \n\t\n"])
def test_blank_text_is_no_chunk(text: str) -> None:
    assert cut(document(text), 0, "a.py", 9999, []) is None


def test_a_line_over_the_budget_is_no_chunk() -> None:
    assert cut(document("x" * 500), 0, "a.py", 400, []) is None


def test_line_ends_are_those_that_models_know() -> None:
    assert snippet_at(document("a\r\nb\r\n"), 0).snippet.text == "a\nb\n"


def test_a_chunk_is_found_where_it_moved_to() -> None:
    source = document()
    snippet = snippet_at(source, 100)
    assert find_again(snippet, source) is snippet
    source.apply(Edit(Position(0, 0), Position(0, 0), "one\ntwo\nthree\n"))
    found = find_again(snippet, source)
    assert found is not None
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
def test_a_chunk_is_whole_free_lines_of_its_document(
    lines: list[str], at: int, max_chars: int, taken: list[range]
) -> None:
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
