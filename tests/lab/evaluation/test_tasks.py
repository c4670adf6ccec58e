"""Where the cursor is put, and what prompt each format makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lsp_server.editing.documents import Document, Position
from lsp_server.prompts.anchors import lay
from lsp_server.prompts.windows import StickyEdges, WindowBudget
from midfill_lab.evaluation.tasks import CUTS, Case, Cut, Task, lay_prompt, place_cursor

BEFORE = "".join(f"line_{number} = {number}\n" for number in range(20))
LINE = Task("a line", "single-line", BEFORE, "    total += value", "\nprint(total)\n", "assert True")
LINES = Task("lines", "multi-line", BEFORE, "    total += value\n    count += 1", "\nprint(total)\n", "assert True")
SPAN = Task("a span", "random-span", BEFORE + "tot", "al = 1\nval", "ue = 2\n")


def words(text: str) -> list[int]:
    """Stands for a tokenizer: a token ends before each space and at the end."""
    return [index for index in range(1, len(text)) if text[index] == " "] + [len(text)]


@pytest.mark.parametrize(
    ("task", "cut", "places"),
    [
        (LINE, "given", {""}),  # the beginning of the middle
        (SPAN, "given", {""}),
        (SPAN, "character", {""}),  # it begins at a random character already
        (SPAN, "token", {"al"}),  # the next boundary
        (LINE, "character", {LINE.middle[:end] for end in range(4, len(LINE.middle))}),  # anywhere in the line's code
        (LINES, "character", {LINES.middle[:end] for end in range(4, LINES.middle.index("\n"))}),  # in the first line
        (LINE, "token", {"    total", "    total +="}),
    ],
)
def test_where_the_cursor_may_stand(task: Task, cut: Cut, places: set[str]) -> None:
    typed = {place_cursor(replace(task, name=str(number)), cut, words, 0).typed for number in range(300)}
    assert typed == places


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("task", [LINE, LINES, SPAN, replace(LINE, middle=""), replace(LINE, middle="   ")])
def test_the_same_seed_puts_it_at_the_same_place(cut: Cut, task: Task) -> None:
    case = place_cursor(task, cut, words, 7)
    assert case == place_cursor(task, cut, words, 7)
    assert case.typed + case.expected == task.middle


def test_a_program_is_the_completed_text() -> None:
    assert Case(LINE, "    total").program(" += value") == f"{BEFORE}    total += value\nprint(total)\n\n"


def test_every_format_shows_the_same_text() -> None:
    case = Case(LINE, "    tot")
    psm, spm, efim = (lay_prompt(case, form, WindowBudget()) for form in ("psm", "spm", "efim"))
    assert psm.prefix == spm.prefix == efim.prefix + efim.increment == BEFORE + "    tot"
    assert psm.suffix == spm.suffix == efim.suffix == "\nprint(total)\n"
    assert (psm.order, spm.order, efim.order) == ("psm", "spm", "psm")
    assert psm.increment == spm.increment == ""


@pytest.mark.parametrize(
    "before", [BEFORE, "a = 1\n", "", "x" * 600 + "\n" + BEFORE[:22], "y = 2\n" + "z" * 400 + "\n"]
)
def test_the_anchor_is_where_the_language_server_lays_it(before: str) -> None:
    budget = WindowBudget(increment_tokens=200)
    document = Document.from_text("file:///a.py", "python", 0, before + "    tot" + LINE.after)
    anchor, _ = lay(document, Position(before.count("\n"), 7), budget, StickyEdges())
    prompt = lay_prompt(Case(replace(LINE, before=before), "    tot"), "efim", budget)
    assert prompt.prefix == anchor.prefix
    assert prompt.suffix == anchor.suffix


def test_windows_are_whole_lines() -> None:
    budget = WindowBudget(prefix_tokens=10, suffix_tokens=3, chars_per_token=3.0)
    prompt = lay_prompt(Case(replace(LINE, after="\nab\ncdefghij\n"), "    tot"), "psm", budget)
    assert prompt.prefix == "line_19 = 19\n    tot"
    assert prompt.suffix == "\nab\n"
