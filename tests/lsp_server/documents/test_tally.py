"""What a document's tally says, compared with a count of its text, and what a count reads."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lsp_server.documents.documents import Document, Edit, Position, line_length, split_lines
from lsp_server.documents.languages import CLOSES, OPENS
from lsp_server.documents.lexing import BRACKETS
from lsp_server.documents.tally import Tally

QUOTES = ('"""', "'''")
TEXT = st.text(alphabet=st.sampled_from(list("ab()[}\"'\r\n")), max_size=30)


@given(TEXT, st.lists(st.tuples(st.integers(0), st.integers(0), st.integers(0), st.integers(0), TEXT), max_size=20), st.data())
def test_the_counts_are_those_of_the_text(text: str, edits: list[tuple[int, int, int, int, str]], data: st.DataObject) -> None:
    document = Document.from_text("file:///a.py", "python", 1, text)

    def place(line: int, column: int) -> Position:
        line %= len(document.lines)
        return Position(line, column % (line_length(document.lines[line]) + 1))

    for start_line, start_column, end_line, end_column, typed in edits:
        start, end = sorted((place(start_line, start_column), place(end_line, end_column)))
        document.apply(Edit(start, end, typed))
        if data.draw(st.booleans()):
            line = data.draw(st.integers(0, len(document.lines) - 1))
            above, whole = document.counts(line)
            text_above = "".join(document.lines[:line])
            for each in (*BRACKETS, *QUOTES):
                assert above[each] == text_above.count(each)
                assert whole[each] == document.text.count(each)


class Watched(list[str]):
    """Lines that count how many of them are read."""

    read = 0

    def __getitem__(self, index: slice) -> list[str]:  # type: ignore[override]
        lines: list[str] = super().__getitem__(index)
        self.read += len(lines)
        return lines


def read_by(tally: Tally, lines: Watched, line: int, typed: Sequence[str]) -> int:
    """How many lines are read for an edit of this line, and the counts behind it."""
    lines.read = 0
    tally.edit(lines, line, line + 1)
    lines[line : line + 1] = typed
    tally.counts(lines, line + len(typed) - 1)
    return lines.read


def test_a_key_reads_the_lines_around_it_alone() -> None:
    lines, tally = Watched(split_lines("f(x)\n" * 10_000)), Tally(("(", ")"))
    read_by(tally, lines, 5_000, ["g(\n"])
    assert read_by(tally, lines, 5_000, ["g()\n"]) == 1
    assert read_by(tally, lines, 5_000, ["g()\n", "h\n"]) == 2
    assert read_by(tally, lines, 4_990, ["i(\n"]) <= 2 * 11 + 1


def test_a_notebooks_cells_are_counted_anew() -> None:
    document = Document.from_text("file:///a", "python", 1, "((")
    assert document.counts(0).whole["("] == 2
    document.renew(["(\n", ""])
    assert document.counts(1).whole["("] == 1


def test_lines_of_blocks_count_by_their_white_space() -> None:
    text = "module A\n  def f\n    g do |x|\n    end\n  end\n  def one() = 1 end\n  def two\n"
    document = Document.from_text("file:///a.rb", "ruby", 1, text)
    counts = document.counts(3)
    lines = [("", OPENS), ("  ", OPENS), ("    ", OPENS)]
    assert [counts.above[line] for line in lines] == [1, 1, 1]
    assert [counts.whole[line] for line in [*lines, ("  ", CLOSES), ("    ", CLOSES)]] == [1, 2, 1, 1, 1]
