"""Recent edits as diffs: what was there, what is there now, without text that the user did not type.

Similar chunks: the most similar first, none that overlap, and none by chance.
"""

from hypothesis import given
from hypothesis import strategies as st

from lsp_server.context.document_sources import CHUNK_LINES, Baselines, RecentEdits, SimilarChunks
from lsp_server.context.proposals import FileText, PromptPlace
from lsp_server.documents.documents import Document, Edit, Position

TEXT = "".join(f"line {n}\n" for n in range(600))


def document(text: str = TEXT) -> Document:
    return Document.from_text("file:///w/b.py", "python", 1, text)


def replace(target: Document, line: int, text: str, removed: int = 1) -> None:
    target.apply(Edit(Position(line, 0), Position(line + removed, 0), text))


def diffs(baselines: Baselines, target: Document) -> list[str]:
    edited = baselines.edited(target)
    place = PromptPlace("file:///w/a.py", "python", (), (), (), edited=() if edited is None else (edited,))
    return [each.text for each in RecentEdits().propose(place)]


def test_an_edit_is_shown_with_the_line_above() -> None:
    baselines, target = Baselines(), document()
    baselines.viewed(target)
    assert diffs(baselines, target) == []
    replace(target, 3, "new 3\nnew 4\n")
    assert diffs(baselines, target) == [" line 2\n-line 3\n+new 3\n+new 4\n"]
    replace(target, 0, "first\n")
    assert diffs(baselines, target) == ["-line 0\n+first\n", " line 2\n-line 3\n+new 3\n+new 4\n"]


def test_an_undone_edit_is_none() -> None:
    baselines, target = Baselines(), document()
    baselines.viewed(target)
    replace(target, 3, "new\n")
    replace(target, 3, "line 3\n")
    assert diffs(baselines, target) == []


def test_a_change_of_the_whole_file_is_no_edit() -> None:
    baselines, target = Baselines(), document()
    baselines.viewed(target)
    replace(target, 0, "other\n" * 600, removed=600)
    assert diffs(baselines, target) == []
    replace(target, 0, "", removed=590)
    assert diffs(baselines, target) == []


def test_an_old_edit_is_forgotten_at_the_next_view() -> None:
    now = [0.0]
    baselines, target = Baselines(lambda: now[0]), document()
    baselines.viewed(target)
    replace(target, 3, "new\n")
    now[0] = 600.0
    baselines.viewed(target)
    assert diffs(baselines, target)
    now[0] = 901.0
    baselines.viewed(target)
    assert diffs(baselines, target) == []


def test_a_closed_document_has_no_edits() -> None:
    baselines, target = Baselines(), document()
    baselines.viewed(target)
    replace(target, 3, "new\n")
    baselines.closed(target.uri)
    assert diffs(baselines, target) == []


EDITS = st.tuples(st.integers(0, 28), st.sampled_from(["", "x\n", "p\r\nq\r\n", "line 5\n"]), st.integers(0, 2))


@given(st.lists(EDITS, max_size=12))
def test_a_diff_says_what_the_document_says(edits: list[tuple[int, str, int]]) -> None:
    baselines, target = Baselines(), document("".join(f"line {n}\n" for n in range(30)))
    before = target.text
    baselines.viewed(target)
    for line, text, removed in edits:
        line = min(line, len(target.lines) - 1)
        replace(target, line, text, min(removed, len(target.lines) - 1 - line))
    for diff in diffs(baselines, target):
        lines = diff.splitlines(keepends=True)
        assert "".join(line[1:] for line in lines if line[0] != "-") in target.text.replace("\r\n", "\n")
        assert all(line[1:] in before for line in lines if line[0] == "-")
        assert any(line[0] != " " for line in lines)


def test_an_edit_far_below_is_found() -> None:
    baselines, target = Baselines(), document(TEXT * 5)
    baselines.viewed(target)
    replace(target, 1537, "new\n")
    assert diffs(baselines, target) == [" line 336\n-line 337\n+new\n"]


def place(before: str, open_texts: tuple[FileText, ...] = (), neighbours: tuple[FileText, ...] = ()) -> PromptPlace:
    lines = tuple(before.splitlines(keepends=True))
    return PromptPlace("file:///w/a.py", "python", lines, lines, ("",), open_texts, neighbours)


def text(*words: str, lines: int = CHUNK_LINES) -> tuple[str, ...]:
    return tuple(f"{words[n % len(words)]} = {n}\n" for n in range(lines))


def test_the_most_similar_chunk_is_first() -> None:
    near = FileText("file:///w/near.py", text("alpha", "beta", "gamma"))
    far = FileText("file:///w/far.py", text("alpha", "two", "three", "four", "five"))
    found = SimilarChunks().propose(place("alpha = beta(gamma)\n", (far, near)))
    assert [each.uri for each in found] == [near.uri, far.uri]
    assert found[0].rank > found[1].rank
    assert found[0].text == "".join(near.lines)


def test_nothing_in_common_is_not_proposed() -> None:
    other = FileText("file:///w/b.py", text("one", "two"))
    assert not SimilarChunks().propose(place("alpha = beta\n", (other,)))
    assert not SimilarChunks().propose(place("\n", (other,)))


def test_lines_count_from_the_documents_beginning() -> None:
    other = FileText("file:///w/b.py", text("one", lines=64) + text("alpha", "beta"), 500)
    (first, *_) = SimilarChunks().propose(place("alpha = beta\n", (other,)))
    assert first.first == 564


def test_a_file_that_changed_is_cut_anew() -> None:
    source = SimilarChunks()
    before, after = (FileText("file:///w/b.py", text(word), stamp=(1, 1)) for word in ("alpha", "other"))
    assert source.propose(place("alpha\n", neighbours=(before,)))[0].stamp == (1, 1)
    assert not source.propose(place("alpha\n", neighbours=(after,)))


@given(st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta"]), min_size=1, max_size=120))
def test_chunks_do_not_overlap_and_say_what_the_file_says(words: list[str]) -> None:
    lines = tuple(f"{word}\n" for word in words)
    found = SimilarChunks().propose(place("alpha beta\n", (FileText("file:///w/b.py", lines),)))
    for number, each in enumerate(found):
        assert each.lines == lines[each.first : each.first + CHUNK_LINES]
        assert all(abs(each.first - other.first) >= CHUNK_LINES for other in found[:number])
    assert [each.rank for each in found] == sorted((each.rank for each in found), reverse=True)
