"""Typing through a suggestion: what is left of it, whatever the edits were.

An entry that is selected in the popup, and what it changes. `║` is the cursor, `[ ]` what the entry replaces.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.documents.documents import Document, Edit, Position
from lsp_server.filters.cursor_context import Insertion
from lsp_server.suggesting.queries import Query, Selected, Suggestion, follow, rest_of
from protocol.messages import Prompt


def document(text: str) -> Document:
    return Document.from_text("file:///a", "python", 1, text)


def suggestion_at(cursor: Position, text: str, *, replaced: int = 0, held: bool = False) -> Suggestion:
    return Suggestion(cursor, cursor, text, Insertion(text, replaced), held)


def rest(suggestion: Suggestion | None, mirror: Document, cursor: Position) -> str:
    insertion = rest_of(suggestion, mirror, cursor)
    return insertion.text if insertion else ""


Place = tuple[int, int]


def edit(mirror: Document, suggestion: Suggestion | None, start: Place, end: Place, text: str) -> Suggestion | None:
    change = Edit(Position(*start), Position(*end), text)
    mirror.apply(change)
    return follow(suggestion, change) if suggestion else None


def test_typing_and_deleting_what_was_typed() -> None:
    mirror = document("x = \n")
    suggestion: Suggestion | None = suggestion_at(Position(0, 4), "compute(y)")
    suggestion = edit(mirror, suggestion, (0, 4), (0, 4), "co")
    assert rest(suggestion, mirror, Position(0, 6)) == "mpute(y)"
    assert rest(suggestion, mirror, Position(0, 5)) == ""  # before an "o" that is no closer
    suggestion = edit(mirror, suggestion, (0, 5), (0, 6), "")
    assert rest(suggestion, mirror, Position(0, 5)) == "ompute(y)"


def test_typing_something_else_leaves_nothing() -> None:
    mirror = document("x = ")
    suggestion = edit(mirror, suggestion_at(Position(0, 4), "compute(y)"), (0, 4), (0, 4), "d")
    assert rest(suggestion, mirror, Position(0, 5)) == ""


def test_closers_of_the_editor_are_no_typing() -> None:
    mirror = document("x = f")
    suggestion = edit(mirror, suggestion_at(Position(0, 5), '("a")'), (0, 5), (0, 5), "()")
    suggestion = edit(mirror, suggestion, (0, 6), (0, 6), '""')
    assert mirror.text == 'x = f("")'
    assert rest(suggestion, mirror, Position(0, 7)) == "a"  # what is closed already is left out


def test_over_lines_with_crlf() -> None:
    mirror = document("def f():\r\n")
    suggestion = edit(mirror, suggestion_at(Position(0, 8), "\n    return 1"), (0, 8), (0, 8), "\r\n    ")
    assert rest(suggestion, mirror, Position(1, 4)) == "return 1"


@pytest.mark.parametrize(("start", "end"), [((0, 0), (0, 0)), ((0, 2), (0, 4)), ((1, 0), (1, 0)), ((0, 4), (1, 0))], ids=str)
def test_an_edit_elsewhere_voids_it(start: Place, end: Place) -> None:
    assert edit(document("x = \ny\n"), suggestion_at(Position(0, 4), "1"), start, end, "z") is None


def test_a_cursor_elsewhere_gets_nothing() -> None:
    assert rest(suggestion_at(Position(0, 4), "12"), document("x = 1\n"), Position(0, 5)) == ""


def test_the_rest_is_what_was_shown_to_the_letter() -> None:
    mirror = document("f(x, )\n")
    suggestion: Suggestion | None = Suggestion(Position(0, 5), Position(0, 5), "y, z)", Insertion("y, z"))
    for typed, left in enumerate(["y, z", ", z", " z", "z", ""]):
        assert rest(suggestion, mirror, Position(0, 5 + typed)) == left
        suggestion = edit(mirror, suggestion, (0, 5 + typed), (0, 5 + typed), "y, z "[typed])


def test_what_replaces_closers_goes_on_replacing_them() -> None:
    mirror = document("def f()\n")
    suggestion = edit(mirror, suggestion_at(Position(0, 6), "a):", replaced=1), (0, 6), (0, 6), "a")
    assert rest_of(suggestion, mirror, Position(0, 7)) == Insertion("):", replaced=1)


def test_what_was_held_back_is_shown_once_it_is_typed() -> None:
    mirror = document("x = ")
    suggestion: Suggestion | None = suggestion_at(Position(0, 4), "yes or no", held=True)
    assert rest(suggestion, mirror, Position(0, 4)) == ""
    suggestion = edit(mirror, suggestion, (0, 4), (0, 4), "y")
    assert rest(suggestion, mirror, Position(0, 5)) == "es or no"
    suggestion = edit(mirror, suggestion, (0, 5), (0, 5), "es o")
    assert rest(suggestion, mirror, Position(0, 9)) == ""  # too little


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3), st.text("ab(\n", max_size=3)), max_size=8))
def test_follows_whatever_is_done_to_what_was_typed(changes: list[tuple[int, int, str]]) -> None:
    """`end` stays behind the typed text: compared with the same edits on a plain string."""
    mirror, typed = document("head\n  "), ""
    suggestion: Suggestion | None = suggestion_at(Position(1, 2), "unused")
    for at, length, text in changes:
        start = min(at, len(typed))
        stop = min(start + length, len(typed))
        suggestion = edit(mirror, suggestion, _place(typed, start), _place(typed, stop), text)
        typed = typed[:start] + text + typed[stop:]
    assert mirror.slice(suggestion.start, suggestion.end) == typed
    assert suggestion.end == mirror.end


def _place(typed: str, offset: int) -> Place:
    lines = typed[:offset].split("\n")
    return len(lines), len(lines[-1]) + (2 if len(lines) == 1 else 0)


def query(marked: str, text: str) -> tuple[Document, Query]:
    start = marked.index("[")
    cursor = marked.index("║") - 1
    end = marked.index("]") - 2
    document = Document.from_text("file:///a", "python", 1, "".join(c for c in marked if c not in "[║]"))
    return document, Query(Position(0, cursor), selected=Selected(start, end, text))


@pytest.mark.parametrize(
    ("marked", "text", "before", "after", "ending"),
    [
        ("x.[ap║])", "append", "x.append", ")", "pend"),
        ("x.[║])", "append", "x.append", ")", "append"),
        ("x.[ap║p]()", "append", "x.append", "()", None),
        ("x.[AP║])", "append", "x.append", ")", None),
    ],
)
def test_the_selected_text_is_in_the_document(marked: str, text: str, before: str, after: str, ending: str) -> None:
    document, asked = query(marked, text)
    place = asked.place(document, "", multi_line=True)
    assert (place.before, place.after, asked.ending(document)) == (before, after, ending)


def test_the_prompt_goes_on_from_it() -> None:
    document, asked = query("x.[ap║])", "append")
    assert asked.prompt(Prompt("y\n", ")", increment="x.ap"), document).increment == "x.append"
    assert asked.prompt(Prompt("y\nx.ap", ")"), document).prefix == "y\nx.append"


def test_the_item_takes_its_place() -> None:
    _, asked = query("x.[ap║p])", "append")
    assert asked.item(Insertion("(1)", replaced=1)) == Insertion("append(1)", replaced=2, taken=2)
