"""Similar chunks: the most similar first, none that overlap, and none by chance."""

from hypothesis import given
from hypothesis import strategies as st

from lsp_server.context.proposals import FileText, Place
from lsp_server.context.sources.similar import CHUNK_LINES, SimilarChunks


def place(before: str, open_texts: tuple[FileText, ...] = (), neighbours: tuple[FileText, ...] = ()) -> Place:
    lines = tuple(before.splitlines(keepends=True))
    return Place("file:///w/a.py", "python", lines, lines, ("",), open_texts, neighbours)


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
