"""An entry that is selected in the popup, and what it changes. `║` is the cursor, `[ ]` what the entry replaces."""

from __future__ import annotations

import pytest

from lsp_server.editing.documents import Document, Position
from lsp_server.filters.cursor_context import Insertion
from lsp_server.suggesting.queries import Query, Selected
from protocol.messages import Prompt


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


def test_without_one_nothing_changes() -> None:
    document = Document.from_text("file:///a", "python", 1, "x")
    asked = Query(Position(0, 1))
    assert asked.ending(document) == ""
    assert asked.item(Insertion("y")) == Insertion("y")
    assert asked.prompt(Prompt("", ""), document) == Prompt("", "")
    assert asked.on_one_line
    assert not Query(Position(0, 1), selected=Selected(0, 1, "a\nb")).on_one_line
