"""Suggestions in LSP's words."""

from __future__ import annotations

from lsprotocol.types import Position as ClientPosition
from lsprotocol.types import Range, TextEdit

from lsp_server.editing.documents import Document, Position
from lsp_server.editing.positions import PositionCodec, PositionEncoding
from lsp_server.features.suggestions import accepted_command, inline_item, popup_item
from lsp_server.filters.cursor_context import Insertion

ACCEPTED = accepted_command(7, 0)
CODEC = PositionCodec(PositionEncoding.UTF16)


def span(start: int, end: int) -> Range:
    return Range(ClientPosition(0, start), ClientPosition(0, end))


def test_inline_items_replace_what_they_say_again() -> None:
    document = Document.from_text("file:///a", "python", 1, '"😋" f()')
    item = inline_item(CODEC, document, Position(0, 6), Insertion("a):", replaced=1), ACCEPTED)
    assert (item.insert_text, item.range) == ("a):", span(7, 8))
    assert item.command == ACCEPTED


def test_inline_items_take_the_place_of_the_selected_entry() -> None:
    document = Document.from_text("file:///a", "python", 1, '"😋" x.ap)')
    item = inline_item(CODEC, document, Position(0, 8), Insertion("append(1)", replaced=1, taken=2), ACCEPTED)
    assert (item.insert_text, item.range) == ("append(1)", span(7, 10))


def test_popup_items_begin_with_the_word_that_is_being_typed() -> None:
    document = Document.from_text("file:///a", "python", 1, "x.über()")
    item = popup_item(CODEC, document, Position(0, 6), Insertion("tragung(1)\n    y", replaced=2), ACCEPTED)
    assert item.text_edit == TextEdit(span(2, 8), "übertragung(1)\n    y")
    assert item.filter_text == "übertragung(1)\n    y"
    assert item.label == "übertragung(1) …"


def test_popup_items_that_begin_with_a_new_line_show_the_next() -> None:
    document = Document.from_text("file:///a", "python", 1, "if x:")
    assert popup_item(CODEC, document, Position(0, 5), Insertion("\n    pass"), ACCEPTED).label == "pass"
