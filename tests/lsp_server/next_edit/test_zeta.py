from __future__ import annotations

from dataclasses import replace

import pytest

from lsp_server.documents.documents import Document, Position, split_lines
from lsp_server.next_edit.formats import BadAnswer, LaidPrompt, NewRegion, edit_of
from lsp_server.next_edit.history import Event
from lsp_server.next_edit.regions import RegionSize
from lsp_server.next_edit.zeta import ZETA_2, ZETA_2_1
from protocol.errors import BadInput
from protocol.messages import Snippet

LINES = split_lines("a = 1\nb = 2\nc = 3\nd = 4\ne = 5\n")
SMALL = RegionSize(region_bytes=18, context_bytes=12)
EVENT = Event("m.py", 0, ("a = 0\n",), ("a = 1\n",), (), ("b = 2\n",))


def laid(layout: object = ZETA_2, **changes: object) -> LaidPrompt:
    small = replace(ZETA_2 if layout is ZETA_2 else ZETA_2_1, size=SMALL, **changes)  # type: ignore[arg-type]
    anchor = small.anchor("m.py", LINES, 2, [EVENT], [Snippet("o.py", "x = 0")])
    return small.lay(anchor, LINES, Position(2, 1))


def test_a_prompt_of_zeta_2() -> None:
    assert laid().text == (
        "<[fim-suffix]>e = 5\n"
        "<[fim-prefix]><filename>o.py\nx = 0\n\n"
        "<filename>edit_history\n--- a/m.py\n+++ b/m.py\n@@ -1,2 +1,2 @@\n-a = 0\n+a = 1\n b = 2\n\n"
        "<filename>m.py\na = 1\n<<<<<<< CURRENT\nb = 2\nc<|user_cursor|> = 3\nd = 4\n=======\n<[fim-middle]>"
    )


def test_a_prompt_of_zeta_2_1_has_tags_in_the_place_of_the_marks() -> None:
    assert laid(ZETA_2_1).text.endswith(
        "<filename>m.py\na = 1\n<|marker_1|>b = 2\nc<|user_cursor|> = 3\nd = 4\n<|marker_2|>\n<[fim-middle]>"
    )


def test_marker_tokens_stand_apart_from_text() -> None:
    assert laid().parts[1::2] == ("<[fim-suffix]>", "<[fim-prefix]>", "<[fim-middle]>")


def test_the_history_goes_before_the_other_files_where_room_is_scarce() -> None:
    text = laid(prompt_bytes=95).text
    assert "edit_history" in text
    assert "o.py" not in text


def test_blocks_begin_behind_empty_lines_and_not_at_closers() -> None:
    lines = split_lines("x\n" * 6 + "\n" + "y\n" * 14 + "}\n  return\n\nz\n" + "w\n" * 9)
    anchor = replace(ZETA_2_1, size=RegionSize(whole=True)).anchor("m.py", lines, 0)
    assert anchor.cuts == (7, 24)  # at the 16th line of the second block stand `}`, `return` and an empty line


def test_the_whole_region_is_read() -> None:
    document = Document("", "", 0, list(LINES))
    answer = ZETA_2.read(laid(), "b = 2\nc = 30<|user_cursor|>\nd = 4\n>>>>>>> UPDATED\n", "stop")
    assert answer == NewRegion("b = 2\nc = 30\nd = 4\n", cursor=12)
    change = edit_of(LINES, laid(), answer)
    assert change is not None
    document.apply(change.edit)
    assert document.text == "a = 1\nb = 2\nc = 30\nd = 4\ne = 5\n"
    assert change.edit.start == Position(2, 5)


@pytest.mark.parametrize("text", ["NO_EDITS\n>>>>>>> UPDATED\n", "b = 2\nc = 3\nd = 4\n"])
def test_no_edit(text: str) -> None:
    assert edit_of(LINES, laid(), ZETA_2.read(laid(), text, "eos")) is None


@pytest.mark.parametrize("text", ["", "b = 2\n<[fim-middle]>c\n", "b\n=======\nc\n", "<|marker_1|>b\n<|marker_2|>"])
def test_answers_of_zeta_2_that_are_none(text: str) -> None:
    with pytest.raises(BadAnswer):
        ZETA_2.read(laid(), text, "stop")


def test_an_answer_cut_by_the_limit_is_none() -> None:
    with pytest.raises(BadAnswer, match="cut"):
        ZETA_2.read(laid(), "b = 2\n", "length")


TAGGED = replace(ZETA_2_1, size=RegionSize(whole=True))
BLOCKS = split_lines("\f" + "".join(f"{'' if i % 8 == 7 else i}\n" for i in range(24)))  # a form feed ends no line
WHOLE = "".join(BLOCKS)


def prompt_of_blocks() -> LaidPrompt:
    return TAGGED.lay(TAGGED.anchor("m.py", BLOCKS, 0), BLOCKS, Position(0, 0))


@pytest.mark.parametrize(
    ("text", "region"),
    [
        ("<|marker_1|>new\n<|marker_2|>", "new\n" + "".join(BLOCKS[8:])),
        ("<|marker_1|>new\n<|marker_2|>and\n<|marker_3|><[end▁of▁sentence]>", "new\nand\n" + "".join(BLOCKS[16:])),
        ("<|marker_2|>new<|user_cursor|><|marker_3|>", "".join((*BLOCKS[:8], "new\n", *BLOCKS[16:]))),
        ("<|marker_2|><|marker_2|>", WHOLE),
        ("<|marker_3|><|marker_4|>", "".join(BLOCKS[:16])),
    ],
)
def test_blocks_are_read(text: str, region: str) -> None:
    prompt = prompt_of_blocks()
    assert prompt.anchor.cuts == (8, 16)
    assert TAGGED.read(prompt, text, "stop").region == region


@pytest.mark.parametrize(
    "text",
    [
        "new\n",
        "<|marker_1|>new\n",
        f"<|marker_1|>new\n<|marker_{'9' * 5000}|>",
        "<|marker_1|>new\n<|marker_5|>",
        "<|marker_3|>new\n<|marker_1|>",
        "<|marker_0|>new\n<|marker_1|>",
        "so <|marker_1|>new\n<|marker_2|>",
    ],
)
def test_answers_of_zeta_2_1_that_are_none(text: str) -> None:
    with pytest.raises(BadAnswer):
        TAGGED.read(prompt_of_blocks(), text, "stop")


def test_the_draft_is_an_answer_without_an_edit() -> None:
    for prompt, layout in ((laid(), ZETA_2), (prompt_of_blocks(), TAGGED)):
        assert layout.read(prompt, prompt.draft, "stop").region == prompt.region


@pytest.mark.parametrize("marker", ["<[fim-middle]>", "<|user_cursor|>", "=======", "<filename>", "<|marker_2|>"])
def test_a_document_with_a_marker_is_refused(marker: str) -> None:
    with pytest.raises(BadInput, match="marker"):
        ZETA_2_1.anchor("m.py", split_lines(f"a\n{marker}\nb\n"), 0)
    anchor = ZETA_2_1.anchor("m.py", ["a\n", "b\n"], 0)
    with pytest.raises(BadInput, match="marker"):
        ZETA_2_1.lay(anchor, ["a\n", f"{marker}\n"], Position(0, 0))


def test_events_and_snippets_with_a_marker_are_left_out() -> None:
    event = replace(EVENT, new=("<|user_cursor|>\n",))
    anchor = ZETA_2.anchor("m.py", LINES, 0, [event], [Snippet("<filename>", "x")])
    assert (anchor.events, anchor.snippets) == ((), ())


def test_an_accepted_proposal_is_said_to_be_one() -> None:
    text = ZETA_2.lay(ZETA_2.anchor("m.py", LINES, 0, [replace(EVENT, accepted=True)]), LINES, Position(0, 0)).text
    assert "edit_history\n// User accepted prediction:\n--- a/m.py\n" in text
