from itertools import pairwise

from lsp_server.documents.documents import Document, Edit, LineChange, Position
from lsp_server.prompts.anchors import StickyEdges, WindowBudget, suffix_stop


def numbered(count: int) -> Document:
    """`count` lines of ten code points each, and an empty one."""
    return Document.from_text("file:///a", "text", 1, "".join(f"{n:09d}\n" for n in range(count)))


def test_the_whole_prefix_is_the_window_where_it_fits() -> None:
    assert StickyEdges().start_for(numbered(50), 40, budget_chars=500) == 0


def test_an_edge_stays_until_the_window_is_full_and_then_takes_a_large_step() -> None:
    document, edges = numbered(1000), StickyEdges()
    starts = [edges.start_for(document, line, budget_chars=1000) for line in range(1, 1000)]
    for line, start in enumerate(starts, start=1):
        assert (line - start) * 10 <= 1000
    moves = [after - before for before, after in pairwise(starts) if after != before]
    assert len(moves) <= 1000 / 40 + 1
    assert min(moves) >= 40


def test_going_back_finds_the_edge_that_was_used_there() -> None:
    document, edges = numbered(1000), StickyEdges()
    there = edges.start_for(document, 300, budget_chars=1000)
    edges.start_for(document, 800, budget_chars=1000)
    assert edges.start_for(document, 310, budget_chars=1000) == there


def test_an_edge_moves_with_the_text() -> None:
    document, edges = numbered(1000), StickyEdges()
    before = edges.start_for(document, 500, budget_chars=1000)
    edges.edited(document.apply(Edit(Position(10, 0), Position(10, 0), "new\nnew\n")))
    assert edges.start_for(document, 502, budget_chars=1000) == before + 2
    edges.edited(document.apply(Edit(Position(10, 0), Position(12, 0), "")))
    assert edges.start_for(document, 500, budget_chars=1000) == before


def test_an_edge_in_deleted_text_goes_where_the_text_was() -> None:
    document, edges = numbered(1000), StickyEdges()
    before = edges.start_for(document, 500, budget_chars=1000)
    edges.edited(LineChange(first=before - 5, removed=10, added=1))
    assert edges.start_for(document, before + 60, budget_chars=1000) == before - 5


def test_a_line_longer_than_the_budget_ends_the_windows() -> None:
    document = Document.from_text("file:///a", "text", 1, "x" * 5000 + "\nshort\nshort\n")
    assert StickyEdges().start_for(document, 2, budget_chars=100) == 1
    assert suffix_stop(document, 0, budget_chars=100) == 0
    assert suffix_stop(document, 1, budget_chars=100) == 4


def test_the_estimate_follows_a_document_only_when_it_is_far_off() -> None:
    budget = WindowBudget(chars_per_token=3.0)
    assert budget.observe(chars=3300, tokens=1000) is budget
    assert budget.observe(chars=150, tokens=100) is budget
    assert budget.observe(chars=2000, tokens=1000).chars_per_token == 2.0
    assert budget.observe(chars=2000, tokens=1000).prefix_chars == 4096


def test_a_core_that_cuts_prompts_does_not_make_them_ever_longer() -> None:
    budget = WindowBudget()
    for _ in range(20):
        budget = budget.observe(chars=budget.prefix_chars + budget.suffix_chars, tokens=1800)  # never more than that
    assert budget.prefix_chars < 2.01 * WindowBudget().prefix_chars
