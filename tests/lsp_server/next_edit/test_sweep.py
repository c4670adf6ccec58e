from __future__ import annotations

from dataclasses import replace

import pytest

from lsp_server.documents.documents import Position, split_lines
from lsp_server.next_edit.formats import BadAnswer
from lsp_server.next_edit.history import Event
from lsp_server.next_edit.sweep import SWEEP_A, SWEEP_B, Sweep
from protocol.errors import BadInput
from protocol.messages import Snippet

LINES = split_lines("".join(f"{letter}\n" for letter in "abcdefghijklmn"))
EVENT = Event("m.py", 6, ("G\n",), ("g\n",), ("e\n", "f\n"), ("h\n", "i\n"))
OTHER = Snippet("o.py", "x")


def laid(form: Sweep, row: int = 6) -> str:
    anchor = form.anchor("m.py", LINES, row, [EVENT], [OTHER], newest=EVENT)
    return form.lay(anchor, LINES, Position(row, 1)).text


def test_form_a() -> None:
    file = "".join(LINES)
    assert laid(SWEEP_A) == (
        f"<|file_sep|>o.py\nx\n<|file_sep|>m.py\n{file}"
        "<|file_sep|>m.py:6:8\noriginal:\nf\nG\nh\nupdated:\nf\ng\nh\n"
        "<|file_sep|>original/m.py:3:11\ne\nf\nG\nh\ni\nj\nk\nl\n"
        "<|file_sep|>current/m.py:3:11\ne\nf\ng<|cursor|>\nh\ni\nj\nk\nl\n"
        "<|file_sep|>updated/m.py:3:11\ne\n"
    )


def test_form_b_has_neither_lines_nor_cursor() -> None:
    window = "".join(LINES)
    before = window.replace("g", "G")
    assert laid(SWEEP_B) == (
        "<|file_sep|>o.py\nx\n<|file_sep|>m.py.diff\noriginal:\nG\nupdated:\ng\n"
        f"<|file_sep|>original/m.py\n{before}<|file_sep|>current/m.py\n{window}<|file_sep|>updated/m.py\n"
    )


def test_of_a_long_file_the_part_around_the_cursor_is_shown() -> None:
    lines = [f"line {number}\n" for number in range(2_000)]
    anchor = SWEEP_A.anchor("m.py", lines, 1_000)
    text = SWEEP_A.lay(anchor, lines, Position(1_000, 0)).text
    assert text.split("<|file_sep|>")[1] == "m.py\n" + "".join(lines[900:1_200])


def test_the_file_stays_as_it_was_when_editing_began() -> None:
    first = SWEEP_A.anchor("m.py", LINES, 0)
    edited = ["A\n", *LINES[1:]]
    text = SWEEP_A.lay(SWEEP_A.anchor("m.py", edited, 0, previous=first), edited, Position(0, 1)).text
    assert text.startswith("<|file_sep|>m.py\na\n")
    assert "current/m.py:1:7\nA<|cursor|>\n" in text


def test_the_answer_goes_on_from_what_is_given() -> None:
    form = replace(SWEEP_A, given="to cursor")
    prompt = form.lay(form.anchor("m.py", LINES, 6), LINES, Position(6, 0))
    assert prompt.given == "e\nf\n"
    answer = form.read(prompt, "new\nh\n<|file_sep|>", "stop")
    assert answer.region == "e\nf\nnew\nh\n"


@pytest.mark.parametrize("text", ["", "\n", "g\n<|cursor|>h\n", "<|file_sep|>g\n"])
def test_answers_that_are_none(text: str) -> None:
    prompt = SWEEP_A.lay(SWEEP_A.anchor("m.py", LINES, 6), LINES, Position(6, 0))
    with pytest.raises(BadAnswer):
        SWEEP_A.read(prompt, text, "stop")


def test_a_document_with_a_marker_is_refused_wherever_it_is_shown() -> None:
    lines = [*LINES, "<|file_sep|>\n"]
    with pytest.raises(BadInput, match="file_sep"):
        SWEEP_A.anchor("m.py", lines, 0)
    assert SWEEP_B.anchor("m.py", lines, 0)  # it shows the window alone
