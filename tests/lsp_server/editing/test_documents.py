import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.editing.documents import Document, Edit, Position, line_length, split_lines
from protocol.errors import BadInput

TEXT = st.text(alphabet=st.sampled_from(list("ab \t\n\r\x0b\x0c\u2028é\u0301😀")), max_size=30)


def offset_of(document: Document, position: Position) -> int:
    return sum(map(len, document.lines[: position.line])) + position.column


@st.composite
def positions(draw: st.DrawFn, document: Document) -> Position:
    line = draw(st.integers(0, len(document.lines) - 1))
    return Position(line, draw(st.integers(0, line_length(document.lines[line]))))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", [""]),
        ("a", ["a"]),
        ("a\n", ["a\n", ""]),
        ("a\r\nb\rc\n", ["a\r\n", "b\r", "c\n", ""]),
        ("a\x0cb\u2028c\x0bd\x85e\x1cf", ["a\x0cb\u2028c\x0bd\x85e\x1cf"]),
        ("\n\r", ["\n", "\r", ""]),
    ],
)
def test_lines_end_where_lsp_says(text: str, lines: list[str]) -> None:
    assert split_lines(text) == lines


@given(TEXT, st.data())
def test_edits_change_the_lines_as_they_change_the_text(text: str, data: st.DataObject) -> None:
    document = Document.from_text("file:///a.py", "python", 1, text)
    for _ in range(3):
        before = list(document.lines)
        start, end = sorted(data.draw(st.tuples(positions(document), positions(document))))
        inserted = data.draw(TEXT)
        expected = document.text[: offset_of(document, start)] + inserted + document.text[offset_of(document, end) :]
        first, removed, added = document.apply(Edit(start, end, inserted))
        assert document.text == expected
        assert document.lines == split_lines(expected)
        assert document.lines[:first] == before[:first]
        assert document.lines[first + added :] == before[first + removed :]


@given(TEXT, st.data())
def test_a_slice_is_the_text_between(text: str, data: st.DataObject) -> None:
    document = Document.from_text("file:///a.py", "python", 1, text)
    start, end = sorted(data.draw(st.tuples(positions(document), positions(document))))
    assert document.slice(start, end) == text[offset_of(document, start) : offset_of(document, end)]


@pytest.mark.parametrize(
    ("start", "end", "message"),
    [
        ((0, 0), (2, 0), "line 2 is not in"),
        ((0, 4), (1, 0), "column 4 is not in line 0"),
        ((-1, 0), (0, 0), "line -1"),
        ((1, 1), (0, 0), "before its start"),
    ],
)
def test_a_bad_range_changes_nothing(start: tuple[int, int], end: tuple[int, int], message: str) -> None:
    document = Document.from_text("file:///a.py", "python", 1, "abc\ndef")
    with pytest.raises(BadInput, match=message):
        document.apply(Edit(Position(*start), Position(*end), "x"))
    assert document.text == "abc\ndef"
