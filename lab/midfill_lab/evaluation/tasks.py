"""Tasks of an evaluation: a text with a middle to fill in, the cursor in it, and the prompt of each format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

from lsp_server.prompts.anchors import LINES_BACK
from lsp_server.prompts.windows import WindowBudget
from protocol.messages import Prompt

Split = Literal["single-line", "multi-line", "random-span", "random-span-light"]
Format = Literal["psm", "spm", "efim"]
Cut = Literal["given", "token", "character"]

SPLITS: tuple[Split, ...] = ("single-line", "multi-line", "random-span", "random-span-light")
FORMATS: tuple[Format, ...] = ("psm", "spm", "efim")
CUTS: tuple[Cut, ...] = ("given", "token", "character")

TokenEnds = Callable[[str], list[int]]  # where the tokens of a text end, in characters


@dataclass(frozen=True, slots=True)
class Task:
    """A text as before, middle and after. `test` calls the completed text's functions and raises if one is wrong.

    The middle of whole lines ends before the last one's newline, which `after` begins with, as in an editor.
    """

    name: str
    split: Split
    before: str
    middle: str
    after: str
    test: str | None = None

    @property
    def is_of_lines(self) -> bool:
        """Whether the middle is one or several whole lines, without the last newline."""
        return self.split in ("single-line", "multi-line")


@dataclass(frozen=True, slots=True)
class Case:
    """A task whose middle has been typed up to the cursor; `expected` is the rest of it."""

    task: Task
    typed: str

    @property
    def expected(self) -> str:
        return self.task.middle[len(self.typed) :]

    @property
    def left_of_cursor(self) -> str:
        return self.task.before + self.typed

    def program(self, completion: str) -> str:
        """The completed text."""
        return f"{self.left_of_cursor}{completion}{self.task.after}\n"


def place_cursor(task: Task, cut: Cut, token_ends: TokenEnds, seed: int) -> Case:
    """The case of a task whose user has stopped typing at the cursor; the same place for the same seed.

    `given` is the beginning of the middle. In whole lines, `token` and `character` are any token boundary and any
    character of the first line's code. A random span begins at a random character already, so `character` does not
    move the cursor, and `token` moves it to the next token boundary. At least one character is left to complete.
    """
    middle = task.middle
    if cut == "given" or (cut == "character" and not task.is_of_lines):
        return Case(task, "")
    places = list(_code_of_first_line(middle)) if task.is_of_lines else list(range(len(middle)))
    if cut == "token":
        boundaries = _boundaries(task, token_ends)
        places = [place for place in places if place in boundaries]
    if not places:
        return Case(task, "")
    at = Random(f"{seed}/{cut}/{task.name}").choice(places) if task.is_of_lines else places[0]
    return Case(task, middle[:at])


def _code_of_first_line(middle: str) -> range:
    first = middle.partition("\n")[0]
    return range(len(first) - len(first.lstrip()), len(first))


def _boundaries(task: Task, token_ends: TokenEnds) -> set[int]:
    """Token boundaries in the middle, counted from its beginning, of the whole lines that it stands in."""
    head = task.before[task.before.rfind("\n") + 1 :]
    newline = task.after.find("\n")
    tail = task.after if newline < 0 else task.after[: newline + 1]
    return {end - len(head) for end in (0, *token_ends(head + task.middle + tail))}


def lay_prompt(case: Case, form: Format, budget: WindowBudget) -> Prompt:
    """The prompt of a case: PSM and SPM put all text left of the cursor into the prefix.

    EFIM lays its anchor as the language server does, at a line start some lines above the cursor; the text
    between is the increment. All formats show the model the same text.
    """
    left = _last_lines(case.left_of_cursor, budget.prefix_chars)
    after = _first_lines(case.task.after, budget.suffix_chars)
    if form == "efim":
        anchor = _anchor(left, budget.increment_chars // 2)
        return Prompt(left[:anchor], after, left[anchor:])
    return Prompt(left, after, order=form)


def _anchor(left: str, max_chars: int) -> int:
    """The line start at most LINES_BACK lines and `max_chars` above the end of `left`, at least its own line's."""
    start = left.rfind("\n") + 1
    for _ in range(LINES_BACK):
        above = left.rfind("\n", 0, max(0, start - 1)) + 1
        if len(left) - above > max_chars:
            break
        start = above
    return start


def _last_lines(text: str, chars: int) -> str:
    if len(text) <= chars:
        return text
    newline = text.find("\n", len(text) - chars - 1)
    return text[newline + 1 :] if newline >= 0 else text[-chars:]


def _first_lines(text: str, chars: int) -> str:
    if len(text) <= chars:
        return text
    newline = text.rfind("\n", 0, chars)
    return text[: newline + 1] if newline >= 0 else text[:chars]
