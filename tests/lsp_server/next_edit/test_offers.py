from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.documents.documents import Document, Edit, Position, Replacement, end_of, split_lines, trimmed
from lsp_server.next_edit.offers import parts_of, rebased, typed_at


def replacement(document: Document, start: tuple[int, int], end: tuple[int, int], text: str) -> Replacement:
    first, last = Position(*start), Position(*end)
    return Replacement(Edit(first, last, text), document.slice(first, last))


TEXT = "a = old(1)\nb = 2\n"
OFFER = (0, 4), (0, 7), "fresh"  # old becomes fresh


@pytest.mark.parametrize(
    ("start", "end", "text", "left"),
    [
        ((0, 4), (0, 4), "fr", ("old", "esh")),
        ((0, 4), (0, 7), "", ("", "fresh")),
        ((0, 4), (0, 7), "fre", ("", "sh")),
        ((0, 5), (0, 6), "", ("od", "fresh")),
        ((0, 7), (0, 7), "sh", ("old", "fre")),
        ((1, 0), (1, 1), "c", ("old", "fresh")),
        ((0, 0), (0, 1), "ab", ("old", "fresh")),
        ((0, 0), (0, 0), "x\n", ("old", "fresh")),
        ((0, 4), (0, 4), "x", None),
        ((0, 4), (0, 4), "es", None),  # the offer has it, but not there
        ((0, 3), (0, 7), "fre", None),
        ((0, 4), (0, 7), "fresh", None),  # nothing is left
    ],
)
def test_an_offer_stays_while_its_text_is_typed(
    start: tuple[int, int], end: tuple[int, int], text: str, left: tuple[str, str] | None
) -> None:
    document = Document.from_text("", "", 0, TEXT)
    offer, typed = replacement(document, *OFFER), replacement(document, start, end, text)
    wanted = Document.from_text("", "", 0, TEXT)
    rest = rebased(offer, typed)
    assert (None if rest is None else (rest.replaced, rest.edit.text)) == left
    if rest is not None and start >= (0, 4):
        document.apply(typed.edit)
        document.apply(rest.edit)
        wanted.apply(offer.edit)
        assert document.lines[0] == wanted.lines[0]


SHORT = st.text("ab\n", max_size=6)


@given(SHORT, SHORT, SHORT, st.data())
def test_what_is_left_of_an_offer_leads_to_the_same_text(old: str, new: str, insert: str, data: st.DataObject) -> None:
    document, wanted = (Document.from_text("", "", 0, f"x{old}y") for _ in range(2))
    offer = trimmed(Replacement(Edit(Position(0, 1), end_of(Position(0, 1), old), new), old))
    first = data.draw(st.integers(0, len(offer.replaced)))
    last = data.draw(st.integers(first, len(offer.replaced)))
    start, end = (end_of(offer.edit.start, offer.replaced[:place]) for place in (first, last))
    typed = Replacement(Edit(start, end, insert), offer.replaced[first:last])
    rest = rebased(offer, typed)
    if rest is not None:
        document.apply(typed.edit)
        assert document.slice(rest.edit.start, rest.edit.end) == rest.replaced
        document.apply(rest.edit)
        wanted.apply(offer.edit)
        assert document.text == wanted.text


@given(SHORT.filter(bool))
def test_an_insertion_can_be_typed_character_by_character(text: str) -> None:
    offer: Replacement | None = Replacement(Edit(Position(0, 0), Position(0, 0), text), "")
    for place, character in enumerate(text):
        assert offer is not None
        assert offer.edit.text == text[place:]
        offer = rebased(offer, Replacement(Edit(offer.edit.start, offer.edit.start, character), ""))
    assert offer is None


@pytest.mark.parametrize(
    ("before", "offered", "typed", "reported"),
    [
        ("if offset {", (0, 9, " <= size"), " <= ", (0, 10, "<=  ")),
        ("if offset {", (0, 9, " <= size"), " <= ", (0, 9, " <= ")),
        ("x:\n\ny", (0, 2, "\n    pass"), "\n", (1, 0, "\n")),
        ("x:\ny", (0, 2, "\n    pass"), "z", (1, 1, "z")),
        ("f(a\nfoo", (0, 3, ", b)"), "z", (1, 0, "\n")),  # a line of its own
        ("f(a)", (0, 3, ", b"), "z", (0, 4, ")")),
        ("f(a)", (0, 3, ", b"), "z", (0, 1, ", b")),  # not behind it
    ],
)
def test_an_insertion_that_a_client_reports_further_on(
    before: str, offered: tuple[int, int, str], typed: str, reported: tuple[int, int, str]
) -> None:
    """Clients that compare texts report what was typed behind what it has in common with the text behind it."""
    document = Document.from_text("", "", 0, before)
    place, there = Position(*offered[:2]), Position(*reported[:2])
    step = Replacement(Edit(there, there, reported[2]), "")
    document.apply(step.edit)
    at = typed_at(Replacement(Edit(place, place, offered[2]), ""), step, document)
    assert at.edit == (step.edit if typed == "z" else Edit(place, place, typed))


def edit_between(old: str, new: str) -> Edit:
    end = Document("file:///a", "text", 0, split_lines(old)).end
    return trimmed(Replacement(Edit(Position(0, 0), end, new), old)).edit


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("a = compute(26)\n", "a = measure(26, unit)\n", [((0, 4, 0, 11), "measure"), ((0, 14, 0, 14), ", unit")]),
        ("a\nb = aa\nc\nd = aa\n", "a\nb = bb\nc\nd = bb\n", [((1, 4, 1, 6), "bb"), ((3, 4, 3, 6), "bb")]),
        ("v = run(3)\n", "v = see(3)\ncheck(v)\n", [((0, 4, 0, 7), "see"), ((0, 10, 0, 10), "\ncheck(v)")]),
        ("v = compute(3)\n", "u = 1\nv = measure(3)\n", [((0, 0, 0, 0), "u = 1\n"), ((0, 4, 0, 11), "measure")]),
        ("a\r\nb\r\nc\r\nd", "a\r\nd", [((1, 0, 3, 0), "")]),
        ("a\nb\nc", "a", [((1, 0, 2, 1), "")]),
        ("a", "a\nb", [((0, 1, 0, 1), "\nb")]),
        ("one two three four five six seven\n", "1 two 3 four 5 six 7\n", [((0, 0, 0, 33), "1 two 3 four 5 six 7")]),
    ],
)
def test_parts(old: str, new: str, parts: list[tuple[tuple[int, int, int, int], str]]) -> None:
    found = parts_of(split_lines(old), edit_between(old, new))
    assert [((*part.start, *part.end), part.text) for part in found] == parts
