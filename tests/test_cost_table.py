"""What each event of editing costs at most, in recomputed tokens: the design's table, row by row, at random places.

A request for a suggestion always computes its last token again: where the table says 0, it is 1.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from inference.engine.slots import common_prefix_length
from inference.loading.engine import load_dry_engine
from inference.loading.options import EngineOptions
from lsp_server.documents.documents import Document, Edit, Position, line_length
from lsp_server.prompts.anchors import LINES_BACK, WindowBudget
from lsp_server.prompts.planner import PromptPlanner
from protocol.messages import CompletionRequest, Usage
from protocol.settings import TINY_MODEL

SOURCES = [path.read_text(encoding="utf-8") for path in sorted((Path(__file__).parents[1] / "lsp_server").rglob("*.py"))]
ALL_LINES = "".join(SOURCES).splitlines(keepends=True)
BUDGET = WindowBudget(prefix_tokens=600, suffix_tokens=300, increment_tokens=200)
ENGINE = load_dry_engine(EngineOptions(TINY_MODEL, healing="off"))  # the tokens of the text as it stands
LEAST = 1
FEW = 2
MARKERS = 2
LINES = st.sampled_from([line.strip() for text in SOURCES for line in text.splitlines() if 5 < len(line.strip()) < 70])
WHERE = st.integers(30, 400)


class Desk:
    """One long document in a store with room for everything, and what the last request was."""

    def __init__(self, line: int) -> None:
        ENGINE.forget("a")
        ENGINE.forget("b")
        self.document = Document.from_text("file:///a.py", "python", 1, "".join(ALL_LINES[:600]))
        self.planner = PromptPlanner(self.document, BUDGET)
        self.cursor = self.end_of(line)
        self.token_ids: tuple[int, ...] = ()
        self.ask()

    def end_of(self, line: int) -> Position:
        return Position(line, line_length(self.document.lines[line]))

    def edit(self, start: Position, end: Position, text: str) -> None:
        self.planner.edited(self.document.apply(Edit(start, end, text)))

    def type(self, letter: str) -> None:
        self.edit(self.cursor, self.cursor, letter)
        self.cursor = Position(self.cursor.line, self.cursor.column + 1)

    def backspace(self) -> None:
        start = Position(self.cursor.line, self.cursor.column - 1)
        self.edit(start, self.cursor, "")
        self.cursor = start

    def ask(self) -> Usage:
        """A request for a suggestion; what it cost. Remembers the tokens of its parts."""
        self.plan = self.planner.plan(self.cursor)
        prompt, encode = self.plan.prompt, ENGINE.tokenizer.encode
        self.before = self.token_ids
        self.prefix, self.suffix, self.increment = map(encode, (prompt.prefix, prompt.suffix, prompt.increment))
        self.token_ids = (-1, *self.prefix, -2, *self.suffix, -3, *self.increment)
        return ENGINE.complete(CompletionRequest("a", prompt, max_tokens=8)).usage

    @property
    def changed(self) -> int:
        """Tokens of the prompt from where it differs from the one before it."""
        return len(self.token_ids) - common_prefix_length(self.before, self.token_ids)


@settings(max_examples=40, deadline=None)
@given(line=WHERE, text=LINES)
def test_typing_costs_the_tokens_that_changed_and_that_is_few(line: int, text: str) -> None:
    desk = Desk(line)
    costs = []
    for letter in text:
        desk.type(letter)
        costs.append(desk.ask().recomputed_tokens)
        assert costs[-1] == max(LEAST, desk.changed)
        assert not desk.plan.relaid
    assert sum(cost <= 3 for cost in costs) >= 0.9 * len(costs)
    assert sum(costs) <= 2 * len(costs)


@settings(max_examples=40, deadline=None)
@given(line=WHERE, text=LINES)
def test_backspacing_costs_the_tokens_that_changed_and_that_is_few(line: int, text: str) -> None:
    desk = Desk(line)
    for letter in text:
        desk.type(letter)
    desk.ask()
    costs = []
    for _ in text:
        desk.backspace()
        costs.append(desk.ask().recomputed_tokens)
        assert costs[-1] <= max(LEAST, desk.changed)
    assert sum(cost <= FEW for cost in costs) >= 0.8 * len(costs)


@settings(max_examples=40, deadline=None)
@given(line=WHERE, there=WHERE, text=LINES)
def test_undo_redo_and_returning_cost_next_to_nothing(line: int, there: int, text: str) -> None:
    desk = Desk(line)
    here, end = desk.cursor, Position(line, desk.cursor.column + len(text))
    for _ in range(2):
        desk.edit(here, here, text)
        desk.cursor = end
        desk.ask()
        desk.edit(here, end, "")
        desk.cursor = here
        assert desk.ask().recomputed_tokens <= FEW
    desk.cursor = desk.end_of(there)
    desk.ask()
    desk.cursor = here
    assert desk.ask().recomputed_tokens <= FEW


@settings(max_examples=40, deadline=None)
@given(line=WHERE, by=st.integers(-25, 60))
def test_a_jump_costs_the_way_and_the_suffix(line: int, by: int) -> None:
    desk = Desk(line)
    before = desk.prefix
    desk.cursor = desk.end_of(line + by)
    usage = desk.ask()
    shared = common_prefix_length(before, desk.prefix)
    if shared < min(len(before), len(desk.prefix)) - FEW:
        return  # the window's edge had to move, which it does in large steps
    way = len(desk.prefix) - shared
    assert usage.recomputed_tokens <= way + len(desk.suffix) + len(desk.increment) + MARKERS


@settings(max_examples=40, deadline=None)
@given(line=WHERE, up=st.integers(LINES_BACK + 1, 12))
def test_an_edit_above_the_anchor_costs_what_is_between_and_the_suffix(line: int, up: int) -> None:
    desk = Desk(line)
    place = desk.end_of(line - up)
    desk.edit(place, place, " x")
    usage = desk.ask()
    between = len(ENGINE.tokenizer.encode("".join(desk.document.lines[line - up : line + 1])))
    assert usage.recomputed_tokens <= between + len(desk.suffix) + MARKERS + FEW + LEAST


@settings(max_examples=40, deadline=None)
@given(line=WHERE, down=st.integers(1, 15))
def test_a_change_of_the_suffix_costs_what_follows_it_and_the_increment(line: int, down: int) -> None:
    desk = Desk(line)
    place = desk.end_of(line + down)
    desk.edit(place, place, " x")
    usage = desk.ask()
    unchanged = desk.document.slice(desk.cursor, Position(line + down, 0))
    stays = len(ENGINE.tokenizer.encode(unchanged)) if desk.plan.relaid else len(desk.suffix)
    assert usage.recomputed_tokens <= len(desk.suffix) - stays + len(desk.increment) + MARKERS + FEW


def test_switching_files_costs_nothing_while_both_are_resident() -> None:
    desk = Desk(100)
    other = Document.from_text("file:///b.py", "python", 1, "".join(ALL_LINES[600:900]))
    there = PromptPlanner(other, BUDGET).plan(Position(80, 0)).prompt
    ENGINE.complete(CompletionRequest("b", there, max_tokens=8))
    assert desk.ask().recomputed_tokens == LEAST
    assert ENGINE.complete(CompletionRequest("b", there, max_tokens=8)).usage.recomputed_tokens == LEAST
