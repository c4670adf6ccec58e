"""Prompts of a document under edits: goldens with a cursor mark ║, and the invariants under random editing."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from lsp_server.context.snippet_pool import Context
from lsp_server.documents.documents import Document, Edit, Position, line_length
from lsp_server.prompts.anchors import LINES_BACK, WindowBudget
from lsp_server.prompts.planner import Plan, PromptPlanner, Strategy

BUDGET = WindowBudget(prefix_tokens=200, suffix_tokens=100, increment_tokens=60, chars_per_token=3.0)


class Editor:
    """A document with a cursor and a planner, edited as by a person."""

    def __init__(self, marked: str, budget: WindowBudget = BUDGET, strategy: Strategy = "efim") -> None:
        before, _, after = marked.partition("║")
        self.document = Document.from_text("file:///a.py", "python", 1, before + after)
        self.planner = PromptPlanner(self.document, budget, strategy)
        self.cursor = Position(before.count("\n"), len(before) - before.rfind("\n") - 1)

    def plan(self) -> Plan:
        plan = self.planner.plan(self.cursor)
        check_windows(self.document, self.cursor, plan)
        return plan

    def edit(self, start: Position, end: Position, text: str) -> None:
        self.planner.edited(self.document.apply(Edit(start, end, text)))

    def type(self, text: str, closing: str = "") -> Plan:
        """Type `text`; the editor adds `closing` behind the cursor."""
        for character in text:
            self.edit(self.cursor, self.cursor, character)
            newline = character == "\n"
            self.cursor = Position(self.cursor.line + newline, 0 if newline else self.cursor.column + 1)
        self.edit(self.cursor, self.cursor, closing)
        return self.plan()

    def backspace(self, count: int) -> Plan:
        for _ in range(count):
            line, column = self.cursor
            start = Position(line, column - 1) if column else Position(line - 1, len(self.document.lines[line - 1]) - 1)
            self.edit(start, self.cursor, "")
            self.cursor = start
        return self.plan()


def check_windows(document: Document, cursor: Position, plan: Plan) -> None:
    """The prompt says what the document says around the cursor, with the gap left out."""
    prompt, text = plan.prompt, document.text.replace("\r\n", "\n")
    offset = len(document.slice(Position(0, 0), cursor).replace("\r\n", "\n"))
    assert text[:offset].endswith(prompt.prefix + prompt.increment)
    assert text[offset:].startswith(plan.gap.replace("\r\n", "\n") + prompt.suffix)


LINES = "".join(f"line {n}\n" for n in range(40))


def test_typing_changes_the_increment_alone() -> None:
    editor = Editor(LINES + "x = ║\nrest\n")
    before = editor.plan()
    after = editor.type("value")
    assert before.relaid
    assert not after.relaid
    assert after.prompt == structs.replace(before.prompt, increment=before.prompt.increment + "value")


def test_the_anchor_lies_lines_above_so_that_corrections_there_keep_it() -> None:
    editor = Editor(LINES + "x = 1║\nrest\n")
    before = editor.plan()
    assert before.prompt.increment.count("\n") == LINES_BACK
    assert not editor.backspace(len("x = 1") + len("line 39\n") + 2).relaid
    assert editor.type("9\n").prompt.prefix == before.prompt.prefix


def test_an_edit_above_the_anchor_lays_a_new_one_and_its_undo_finds_the_old_one() -> None:
    editor = Editor(LINES + "x = ║\nrest\n")
    before = editor.plan()
    editor.edit(Position(20, 0), Position(20, 0), "inserted\n")
    editor.cursor = Position(editor.cursor.line + 1, editor.cursor.column)
    assert editor.plan().relaid
    editor.edit(Position(20, 0), Position(21, 0), "")
    editor.cursor = Position(editor.cursor.line - 1, editor.cursor.column)
    assert editor.plan() == replace(before, relaid=False)


def test_auto_closed_brackets_stay_out_of_the_prompt() -> None:
    editor = Editor(LINES + "║\nrest\n")
    before = editor.plan()
    typed = editor.type("f(", closing=")")
    assert not typed.relaid
    assert typed.gap == ")"
    assert typed.prompt.suffix == before.prompt.suffix
    assert editor.type("a[", closing="]").gap == "])"


def test_an_anchor_laid_inside_auto_closed_brackets_leaves_them_out_too() -> None:
    editor = Editor(LINES + "f(║)\nrest\n")
    plan = editor.plan()
    assert plan.gap == ")"
    assert plan.prompt.suffix.startswith("\nrest")
    editor.cursor = Position(editor.cursor.line, editor.cursor.column + 1)  # typed over
    assert not editor.plan().relaid


def test_text_behind_the_cursor_that_is_not_auto_closed_is_in_the_suffix() -> None:
    editor = Editor(LINES + "f(║\nrest\n")
    editor.plan()
    editor.type("a, b)")
    editor.cursor = Position(editor.cursor.line, editor.cursor.column - 3)
    plan = editor.plan()
    assert plan.relaid
    assert plan.prompt.suffix.startswith(" b)\n")


def test_going_back_and_forth_finds_both_anchors() -> None:
    editor = Editor(LINES + "x = ║\n" + LINES + "end\n")
    here, there = editor.cursor, Position(70, 0)
    first = editor.plan()
    editor.cursor = there
    assert editor.plan().relaid
    editor.cursor = here
    assert editor.plan() == replace(first, relaid=False)
    editor.cursor = there
    assert not editor.plan().relaid


def test_a_key_adds_no_snippets_to_those_that_a_prefetch_has_just_made_resident() -> None:
    editor, added = Editor(LINES * 3 + "║"), list[bool]()

    def context(_: WindowBudget, adds: bool) -> Context:
        added.append(adds)
        return Context()

    planner = PromptPlanner(editor.document, BUDGET, context=context)
    for line, prefetch in ((120, True), (80, False), (40, False), (10, True), (10, False), (60, False)):
        planner.plan(Position(line, 0), prefetch=prefetch)
    assert added == [True, False, True, True, True]


def test_a_long_increment_is_laid_anew_by_a_prefetch_where_that_is_free() -> None:
    editor = Editor(LINES + "║\nrest\n")
    editor.plan()
    assert not editor.planner.plan(editor.cursor, prefetch=True).relaid
    plan = editor.type("word " * 20)
    assert not plan.relaid
    assert editor.planner.plan(editor.cursor, prefetch=True).relaid
    assert not editor.type("word " * 10).relaid
    assert editor.type("word " * 30).relaid


def test_the_same_text_elsewhere_is_not_mistaken_for_the_document_end() -> None:
    editor = Editor("a\n\na║")
    assert editor.plan().prompt.suffix == ""
    editor.cursor = Position(0, 1)
    assert editor.plan().prompt.suffix == "\n\na"


def test_overlong_lines_are_cut_inside() -> None:
    editor = Editor("a" * 3000 + "║" + "b" * 3000)
    plan = editor.plan()
    prompt = plan.prompt
    assert set(prompt.prefix + prompt.increment) == {"a"}
    assert len(prompt.prefix) <= BUDGET.prefix_chars
    assert len(prompt.increment) <= BUDGET.increment_chars
    assert prompt.suffix == "b" * BUDGET.suffix_chars
    typed = editor.type("aa")
    assert not typed.relaid
    assert typed.prompt == structs.replace(prompt, increment=prompt.increment + "aa")
    editor.edit(Position(0, 2990 - BUDGET.increment_chars), Position(0, 2991 - BUDGET.increment_chars), "c")
    assert editor.plan().relaid


@pytest.mark.parametrize("strategy", ["psm", "spm"])
def test_the_rivals_have_the_cursor_at_the_end_of_the_prefix(strategy: Strategy) -> None:
    editor = Editor(LINES + "x = ║\nrest\n", strategy=strategy)
    prompt = editor.type("1").prompt
    assert prompt.order == strategy
    assert prompt.prefix.endswith("line 39\nx = 1")
    assert prompt.suffix == "\nrest\n"
    assert prompt.increment == ""
    assert not editor.planner.holds(editor.cursor)


PIECES = st.sampled_from(["a", "b", " ", "\n", "\n    ", "(", ")", "{", "}", '"', "word", "\t", "é", "😀", "e\u0301"])


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(["\n", "\r\n"]), st.sampled_from(["efim", "psm", "spm"]))
def test_prompts_equal_the_document_under_random_editing(data: st.DataObject, ending: str, strategy: Strategy) -> None:
    text = "".join(data.draw(st.lists(PIECES, max_size=200))).replace("\n", ending)
    document = Document.from_text("file:///a.py", "python", 1, text)
    budget = WindowBudget(prefix_tokens=20, suffix_tokens=12, increment_tokens=8, chars_per_token=2.0)
    planner = PromptPlanner(document, budget, strategy)
    for _ in range(data.draw(st.integers(1, 12))):
        visits = st.integers(0, len(document.lines) - 1).flatmap(
            lambda line: st.integers(0, line_length(document.lines[line])).map(lambda column: Position(line, column))
        )
        start, cursor = sorted(data.draw(st.tuples(visits, visits)))
        if data.draw(st.booleans()):
            inserted = data.draw(PIECES).replace("\n", ending)
            planner.edited(document.apply(Edit(start, cursor, inserted)))
            cursor = start if "\n" in inserted else Position(start.line, start.column + len(inserted))
        plan = planner.plan(cursor, prefetch=data.draw(st.booleans()))
        check_windows(document, cursor, plan)
        if strategy == "efim":
            assert len(plan.prompt.increment) <= budget.increment_chars
        assert planner.plan(cursor).prompt == plan.prompt


def test_a_window_does_not_end_within_a_line_end() -> None:
    document = Document.from_text("file:///a.py", "python", 1, "abcdefgh\r\nrest\r\n")
    for tokens in (8, 9, 10):
        budget = WindowBudget(prefix_tokens=8, suffix_tokens=tokens, increment_tokens=8, chars_per_token=1.0)
        plan = PromptPlanner(document, budget).plan(Position(0, 0))
        assert plan.prompt.suffix == ("abcdefgh" if tokens < 10 else "abcdefgh\n")
        assert PromptPlanner(document, budget).plan(Position(0, 0)).prompt == plan.prompt
