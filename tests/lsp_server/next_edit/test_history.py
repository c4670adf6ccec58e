from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from lsp_server.documents.documents import Document, Edit, Position
from lsp_server.next_edit.history import MAX_SHOWN, Event, History, diff


@dataclass
class Typist:
    """Edits documents at a clock, and keeps their history."""

    history: History = field(default_factory=History)
    now: float = 1000.0
    documents: dict[str, Document] = field(default_factory=dict)

    def edit(self, row: int, old: str, new: str, wait: float = 0.1, path: str = "a.py", *, accepted: bool = False) -> None:
        text = "".join(f"line {number}\n" for number in range(40))
        document = self.documents.setdefault(path, Document.from_text(path, "", 0, text))
        self.now += wait
        before = list(document.lines)
        column = document.lines[row].index(old)
        change = document.apply(Edit(Position(row, column), Position(row, column + len(old)), new))
        self.history = self.history.edited(path, before, document.lines, change, self.now, accepted=accepted)

    @property
    def changes(self) -> list[tuple[str, str]]:
        return [("".join(event.old), "".join(event.new)) for event in self.history.events]


def test_near_edits_are_one_event_whose_diff_has_context() -> None:
    typist = Typist()
    for row, new in ((10, "a"), (10, "b"), (17, "c")):
        typist.edit(row, "line", f"line{new}")
    (event,) = typist.history.events
    assert event.first == 10
    assert diff(event) == (
        "@@ -8,14 +8,14 @@\n line 7\n line 8\n line 9\n-line 10\n+lineba 10\n line 11\n line 12\n line 13\n line 14\n"
        " line 15\n line 16\n-line 17\n+linec 17\n line 18\n line 19\n line 20\n"
    )


def test_far_edits_are_events_of_their_own() -> None:
    typist = Typist()
    typist.edit(20, "line", "x")
    typist.edit(20 - 9, "line", "y")
    typist.edit(3, "line", "z")  # 8 lines off
    typist.edit(3, "line", "b", path="b.py")
    assert [(event.path, event.first, len(event.new)) for event in typist.history.events] == [
        ("a.py", 20, 1),
        ("a.py", 3, 9),
        ("b.py", 3, 1),
    ]


def test_the_newest_event_alone_is_split_at_its_last_pause() -> None:
    typist = Typist()
    typist.edit(5, "line", "one")
    typist.edit(6, "line", "two", wait=1.0)
    assert typist.changes == [("line 5\n", "one 5\n"), ("line 6\n", "two 6\n")]
    typist.edit(7, "line", "three", wait=2.0)
    assert typist.changes == [("line 5\nline 6\n", "one 5\ntwo 6\n"), ("line 7\n", "three 7\n")]
    typist.edit(30, "line", "far")
    assert [new for _, new in typist.changes] == ["one 5\ntwo 6\nthree 7\n", "far 30\n"]


def test_inserted_lines_move_what_is_compared() -> None:
    typist = Typist()
    typist.edit(5, " 5", " 5\nnew")
    typist.edit(6, "new", "newer")
    assert typist.changes == [("", "newer\n")]
    typist.edit(6, "newer", "")
    assert [event.new for event in typist.history.events] == [("\n",)]
    typist.edit(30, "line", "above\nline")
    assert typist.changes[-1] == ("", "above\n")


def test_what_was_taken_back_is_no_event() -> None:
    typist = Typist()
    typist.edit(5, "line", "lines")
    typist.edit(5, "lines", "line")
    assert typist.changes == []
    typist.edit(30, "line", "far")
    for row in (0, 15) * MAX_SHOWN:  # nor does it push others out
        typist.edit(row, "line", "x")
        typist.edit(row, "x", "line")
    assert typist.changes == [("line 30\n", "far 30\n")]


def test_an_acceptance_is_an_event_by_itself() -> None:
    typist = Typist()
    typist.edit(5, "line", "one")
    typist.edit(5, "one", "two", accepted=True)
    typist.edit(5, "two", "three")
    assert [new for _, new in typist.changes] == ["one 5\n", "two 5\n", "three 5\n"]
    assert [event.accepted for event in typist.history.events] == [False, True, False]


def test_six_events_are_shown_and_long_ones_dropped() -> None:
    typist = Typist()
    for number in range(MAX_SHOWN + 1):
        typist.edit(20, "line", "x", path=f"{number}.py")
    assert [event.path for event in typist.history.events] == [f"{number}.py" for number in range(1, MAX_SHOWN + 1)]
    long = Typist()
    long.edit(15, "line", "y" * 7_000)
    assert long.history.events == ()


def test_an_event_closes_at_a_pause_or_where_the_cursor_goes_far() -> None:
    typist = Typist()
    assert not typist.history.closes(9.0)
    typist.edit(10, "line", "x")
    assert not typist.history.closes(typist.now + 0.5, "a.py", 18)
    assert typist.history.closes(typist.now + 1.0)
    assert typist.history.closes(typist.now + 0.5, "a.py", 20)
    assert typist.history.closes(typist.now + 0.5, "b.py", 10)


def test_hunks_far_from_each_other_within_an_event() -> None:
    old, new = [[f"{number}\n" for number in range(20)] for _ in range(2)]
    new[1], new[9:9] = "one\n", ["new\n"]
    text = diff(Event("a.py", 4, tuple(old), tuple(new), ("above\n",)))
    assert text == ("@@ -4,6 +4,6 @@\n above\n 0\n-1\n+one\n 2\n 3\n 4\n@@ -11,6 +11,7 @@\n 6\n 7\n 8\n+new\n 9\n 10\n 11\n")


@pytest.mark.timeout(20)
def test_what_is_costly_to_compare_is_bounded() -> None:
    old, new = ("a\n", "\n") * 1_900, ("\n", "b\n") * 1_900
    assert diff(Event("a.py", 0, old, new)) == ""
    assert diff(Event("a.py", 0, old * 40, new * 40)) == ""
