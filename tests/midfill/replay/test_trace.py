import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.documents.documents import Document, Position
from midfill.replay.trace import Patch, Trace, play, position_at, read_trace, text_at
from protocol.errors import BadTrace


def trace_of(start: str, *transactions: list[Patch]) -> Trace:
    return Trace("test", start, None, tuple(map(tuple, transactions)))


@st.composite
def sessions(draw: st.DrawFn) -> tuple[Trace, list[str]]:
    """A trace of random patches, and the text after each transaction."""
    texts = st.text(alphabet="ab\n\r😀", max_size=6)
    text = start = draw(texts)
    transactions, after = [], []
    for _ in range(draw(st.integers(0, 6))):
        patches = []
        for _ in range(draw(st.integers(1, 3))):
            first, last = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
            # The middle of a \r\n is no place that an editor names.
            if any(text[at - 1 : at + 1] == "\r\n" for at in (first, last) if at):
                continue
            patches.append(Patch(first, last - first, draw(texts)))
            text = text[:first] + patches[-1].inserted + text[last:]
        if patches:
            transactions.append(patches)
            after.append(text)
    return trace_of(start, *transactions), after


@given(sessions(), st.integers(0, 3))
def test_the_steps_edit_a_document_as_the_patches_edit_the_text(session: tuple[Trace, list[str]], start: int) -> None:
    trace, after = session
    start = min(start, len(after))
    document = Document.from_text("file:///a", "text", 1, text_at(trace, start))
    steps = list(play(trace, start))
    assert [step.text for step in steps] == after[start:]
    for step in steps:
        if step.moved_to is not None:
            document.check(step.moved_to)
        for edit in step.edits:
            document.apply(edit)
        assert document.text == step.text
        document.check(step.cursor)


def test_typing_on_is_no_move_and_typing_elsewhere_is() -> None:
    first, second, third = play(trace_of("one\ntwo\n", [Patch(3, 0, "a")], [Patch(4, 0, "b")], [Patch(9, 0, "c")]))
    assert first.moved_to == Position(0, 3)
    assert second.moved_to is None
    assert second.cursor == Position(0, 5)
    assert third.moved_to == Position(1, 3)


def test_backspace_and_delete_happen_at_the_cursor() -> None:
    steps = list(play(trace_of("abcdef", [Patch(2, 0, "x")], [Patch(2, 1, "")], [Patch(2, 1, "")], [Patch(2, 2, "")])))
    assert [step.moved_to for step in steps[1:]] == [None, None, Position(0, 4)]


def test_the_cursor_follows_the_patch_that_inserts_most() -> None:
    # Enter, and the white space that the line above loses.
    (step,) = play(trace_of("    \nrest", [Patch(4, 0, "\n    "), Patch(0, 4, "")]))
    assert step.cursor == Position(1, 4)
    assert step.moved_to == Position(0, 4)
    assert not step.single_cursor


@pytest.mark.parametrize(("text", "offset", "position"), [("a\nb", 2, (1, 0)), ("a\r\nb\rc", 5, (2, 0)), ("😀a", 1, (0, 1))])
def test_positions_count_code_points(text: str, offset: int, position: tuple[int, int]) -> None:
    assert position_at(text, offset) == position


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"is not a trace: it is no JSON, or damaged \(Expecting value"),
        (b"\x1f\x8bnot gzip", "cannot be read: "),
        (b"[1]", "no list `txns`"),
        (json.dumps({"txns": [{}]}).encode(), "transaction 0"),
        (json.dumps({"txns": [{"patches": [[0, 0]]}]}).encode(), "transaction 0"),
        (json.dumps({"txns": [{"patches": [[0, -1, "a"]]}]}).encode(), "bad patch"),
        (json.dumps({"txns": [], "startContent": 3}).encode(), "must be text"),
        (json.dumps({"txns": [{"patches": [], "time": "noon"}]}).encode(), "bad time"),
        (json.dumps({"txns": [{"patches": [], "time": 12}]}).encode(), "bad time"),
    ],
)
def test_what_is_not_a_trace_is_refused_by_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "session.json"
    path.write_bytes(content)
    with pytest.raises(BadTrace, match=message) as error:
        read_trace(path)
    assert "session.json" in str(error.value)


def test_a_trace_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadTrace) as error:
        read_trace(tmp_path / "session.json")
    assert str(error.value) == f"{tmp_path}/session.json cannot be read: No such file or directory"


def test_steps_have_the_times_of_a_recording_that_has_all_of_them(tmp_path: Path) -> None:
    patches = [[0, 0, "a"]]
    times = ["2026-11-23T10:00:00.000Z", "2026-11-23T10:00:01.500Z"]
    path = tmp_path / "session.json"
    path.write_text(json.dumps({"txns": [{"patches": patches, "time": time} for time in times]}))
    first, second = [step.time for step in play(read_trace(path))]
    assert first is not None
    assert second == first + 1.5
    path.write_text(json.dumps({"txns": [{"patches": patches, "time": times[0]}, {"patches": patches}]}))
    assert [step.time for step in play(read_trace(path))] == [None, None]


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="nowhere"):
        read_trace(tmp_path / "nowhere.json")


def test_a_patch_beyond_the_document_is_refused_with_its_place() -> None:
    with pytest.raises(BadTrace, match=r"transaction 1 changes \[2, 9\) of a document of 4"):
        list(play(trace_of("abc", [Patch(0, 0, "x")], [Patch(2, 7, "")])))


def test_gzipped_or_not_is_the_same(tmp_path: Path) -> None:
    content = json.dumps({"startContent": "a", "endContent": "ab", "txns": [{"patches": [[1, 0, "b"]]}]}).encode()
    (tmp_path / "s.json").write_bytes(content)
    (tmp_path / "s.json.gz").write_bytes(gzip.compress(content))
    plain, packed = read_trace(tmp_path / "s.json"), read_trace(tmp_path / "s.json.gz")
    assert plain == packed
    assert plain.name == "s"
    assert text_at(plain, 1) == plain.end
