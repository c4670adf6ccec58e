from __future__ import annotations

import pytest

from inference.text.rendered_next_edits import read_next_edit
from lsp_server.documents.documents import Position
from lsp_server.next_edit.families import FORMATS
from lsp_server.next_edit.formats import NextEditFormat
from tests.recorded_next_edits import recorded_bodies


@pytest.mark.parametrize(("model", "markers"), [("zeta-2", 3), ("sweep-next-edit-1.5B", 0)])
def test_a_recorded_prompt_keeps_its_bytes_and_their_order(model: str, markers: int) -> None:
    prompts = [body["prompt"] for body in recorded_bodies(model)]
    assert len(prompts) >= 4
    for prompt in prompts:
        read = read_next_edit(prompt)
        assert read is not None
        assert "".join(read.parts) == prompt
        assert len(read.parts[1::2]) == (markers or prompt.count("<|file_sep|>"))
        assert all(part.startswith("<") for part in read.parts[1::2])
        assert read.copies.strip()
        assert "cursor|>" not in read.copies


@pytest.mark.parametrize("layout", FORMATS.values(), ids=FORMATS)
def test_what_the_language_server_lays_is_read_as_it_laid_it(layout: NextEditFormat) -> None:
    lines = [f"line {number}\n" for number in range(60)]
    laid = layout.lay(layout.anchor("a.py", lines, 30), lines, Position(30, 4))
    read = read_next_edit(laid.text)
    assert read is not None
    assert (read.parts, read.copies) == (laid.parts, laid.draft)


@pytest.mark.parametrize(
    "text",
    [
        "<[fim-suffix]>S<[fim-prefix]>P<[fim-middle]>",
        "<[fim-suffix]>S",
        "<|file_sep|>a.py\nA\n<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>",
        "x = ",
    ],
)
def test_other_prompts_are_none(text: str) -> None:
    assert read_next_edit(text) is None
