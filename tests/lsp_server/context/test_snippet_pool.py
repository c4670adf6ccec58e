"""Context from other documents: what is chosen, that it stays put, and that prompts never show what is excluded."""

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.context.proposals import TextProposal, rank
from lsp_server.context.snippet_pool import Context, SnippetPool
from lsp_server.documents.documents import Document, Edit, Position
from lsp_server.documents.positions import shown_path
from lsp_server.prompts.anchors import WindowBudget
from lsp_server.prompts.planner import PromptPlanner
from protocol.messages import Snippet

BUDGET = 1200  # two snippets of 40 lines of the documents below, and not three


class Workspace:
    """Open documents `a`, `b` ... with lines such as `a 17`, and a source that proposes where the user was last."""

    def __init__(self, visited: Iterable[str] = (), names: Iterable[str] = "abcdefg", lines: int = 200) -> None:
        self.excluded: set[str] = set()
        self.pool = SnippetPool(self.excluded.__contains__, lambda uri: shown_path(uri, ["file:///w"]))
        self.documents: dict[str, Document] = {}
        self.places: list[tuple[str, int]] = []  # the last one first
        for name in names:
            self.open(name, "".join(f"{name} {n:04} text\n" for n in range(lines)))
        for name in visited:
            self.visit(name, 100)

    def open(self, name: str, text: str) -> None:
        self.documents[name] = Document.from_text(uri(name), "python", 1, text)

    def visit(self, name: str, line: int) -> None:
        self.pool.visited(self.documents[name], line)
        self.places.insert(0, (name, line))

    def edit(self, name: str, line: int, text: str, removed: int = 0) -> None:
        document = self.documents[name]
        end = Position(min(line + removed, len(document.lines) - 1), 0)
        document.apply(Edit(Position(line, 0), end, text))
        self.pool.edited(document, line)
        self.places.insert(0, (name, line))

    def close(self, name: str) -> None:
        del self.documents[name]
        self.places = [place for place in self.places if place[0] != name]
        self.pool.closed(uri(name))

    def context(self, name: str, budget: int, *, adds: bool = True) -> Context:
        self.pool.expect(uri(name))
        places = [(other, line) for other, line in self.places if other != name and other in self.documents]
        self.pool.gathered(uri(name), [self._proposal(*place, number) for number, place in enumerate(places)], ())
        return self.pool.context_for(uri(name), budget, adds=adds)

    def _proposal(self, name: str, line: int, number: int) -> TextProposal:
        first = max(0, line - 20)
        lines = tuple(self.documents[name].lines[first : first + 40])
        return TextProposal(uri(name), "similar", rank("similar", 1.0, number), first, lines)

    def snippets(self, name: str = "a", budget: int = BUDGET) -> tuple[Snippet, ...]:
        return self.context(name, budget).snippets

    def starts(self, name: str = "a", budget: int = BUDGET) -> list[str]:
        """The first line of each snippet, without its text."""
        return [snippet.text[:6] for snippet in self.snippets(name, budget)]


def uri(name: str) -> str:
    return f"file:///w/src/{name}.py"


def test_chunks_are_cut_where_the_user_was_and_the_last_place_stands_last() -> None:
    workspace = Workspace("b")
    workspace.edit("c", 50, "")
    snippets = workspace.snippets()
    assert [snippet.path for snippet in snippets] == ["src/b.py", "src/c.py"]
    assert workspace.starts() == ["b 0080", "c 0030"]
    assert snippets[0].text == "".join(f"b {n:04} text\n" for n in range(80, 120))


def test_the_sources_are_told() -> None:
    workspace = Workspace()
    workspace.visit("b", 0)
    workspace.visit("c", 0)
    assert workspace.context("a", BUDGET).sources == {uri("b"), uri("c")}


def test_a_chunk_that_is_kept_may_be_taken_from_its_document_again() -> None:
    workspace = Workspace("b")
    workspace.snippets()
    workspace.pool.gathered(uri("a"), (), ())
    assert set(workspace.pool.uris_for(uri("a"))) == {uri("b")}


def test_nothing_is_kept_of_a_document_that_is_closed_or_excluded() -> None:
    workspace = Workspace("bc")
    for name in "ab":
        workspace.snippets(name)
    assert set(workspace.pool.uris_for(uri("a"))) == {uri("b"), uri("c")}
    workspace.pool.closed(uri("b"))
    assert set(workspace.pool.uris_for(uri("a"))) == {uri("c")}
    assert [each.document.uri for each in workspace.pool.documents] == [uri("c")]
    workspace.pool.gathered(uri("b"), workspace.pool._gathered[uri("a")], ())
    assert uri("b") not in workspace.pool._gathered


def test_an_edit_is_no_look_at_the_document() -> None:
    workspace = Workspace()
    for line in (3, 5):
        workspace.edit("b", line, "new\n")
    assert list(workspace.pool.edits(uri("a"))) == []
    workspace.visit("b", 3)
    workspace.edit("b", 7, "new\n")
    assert [each.first for each in workspace.pool.edits(uri("a"))] == [7]


def test_a_chunk_stays_when_its_place_moves_within_it() -> None:
    workspace = Workspace("b")
    before = workspace.snippets()
    workspace.visit("b", 110)
    assert workspace.snippets() == before


def test_lines_above_a_chunk_do_not_disturb_it() -> None:
    workspace = Workspace("b")
    before = workspace.snippets()
    workspace.edit("b", 3, "import one\nimport two\n")
    assert workspace.snippets()[: len(before)] == before


def test_an_edited_chunk_is_cut_anew_and_goes_last() -> None:
    workspace = Workspace("bc")
    assert workspace.starts() == ["b 0080", "c 0080"]
    workspace.edit("b", 100, "b new line\n")
    assert workspace.starts() == ["c 0080", "b 0080"]
    assert "b new line\n" in workspace.snippets()[1].text


def test_a_chunk_gives_way_only_when_well_behind() -> None:
    workspace = Workspace("bc")
    assert workspace.starts() == ["b 0080", "c 0080"]
    for name in "de":  # four visits: b is the last of twice what fits
        workspace.visit(name, 100)
        assert workspace.starts() == ["b 0080", "c 0080"]
    workspace.visit("f", 100)
    assert workspace.starts() == ["c 0080", "f 0080"]


def test_a_chunk_does_not_give_way_to_places_further_behind() -> None:
    workspace = Workspace("dbc")
    assert workspace.starts() == ["b 0080", "c 0080"]
    workspace.visit("b", 100)
    workspace.excluded.add(uri("e"))
    for line in (10, 60, 110, 160):
        workspace.visit("e", line)
    assert workspace.starts() == ["b 0080", "c 0080"]


def test_chunks_of_text_that_repeats_do_not_come_to_overlap() -> None:
    workspace = Workspace(names="a")
    workspace.open("b", "".join(f"b {n:04} text\n" for n in range(50)) * 4)
    workspace.visit("b", 20)
    workspace.visit("b", 95)
    assert workspace.starts() == ["b 0000", "b 0025"]
    workspace.edit("b", 70, "", removed=130)  # what the second snippet says still stands in the lines 25 to 65
    assert len(workspace.snippets()) == 2
    assert [snippet.span for snippet in workspace.pool.selection(uri("a"))] == [range(40), range(50, 71)]


def test_an_excluded_document_leaves_and_another_takes_the_room() -> None:
    workspace = Workspace("dbc")
    assert workspace.starts() == ["b 0080", "c 0080"]
    workspace.excluded.add(uri("b"))
    assert workspace.starts() == ["c 0080", "d 0080"]


def test_the_same_text_stands_there_once() -> None:
    workspace = Workspace()
    for name in ("copy", "again"):
        workspace.open(name, "same\n" * 30)
        workspace.visit(name, 0)
    assert len(workspace.snippets()) == 1


def test_a_document_opened_again_is_looked_at_anew() -> None:
    workspace = Workspace("b")
    workspace.open("b", "short\n")
    workspace.visit("b", 0)
    assert workspace.starts() == ["short\n"]


NAMES = st.sampled_from("abcd")
STEPS = st.one_of(
    st.tuples(st.just("visit"), NAMES, st.integers(0, 150)),
    st.tuples(st.just("edit"), NAMES, st.integers(0, 150), st.sampled_from(["", "x", "new\n", "p\nq\nr\n"]), st.integers(0, 60)),
    st.tuples(st.just("exclude"), NAMES),
    st.tuples(st.just("close"), NAMES),
    st.tuples(st.just("lay"), NAMES, st.sampled_from([0, 150, 700, BUDGET, 5000])),
)


def take(workspace: Workspace, step: tuple) -> None:  # type: ignore[type-arg]
    kind, name, *rest = step
    if name not in workspace.documents:
        workspace.open(name, "".join(f"{name} {n:04} text\n" for n in range(160)))
    last = len(workspace.documents[name].lines) - 1
    if kind == "visit":
        workspace.visit(name, rest[0])
    elif kind == "edit":
        workspace.edit(name, min(rest[0], last), *rest[1:])
    elif kind == "exclude":
        workspace.excluded ^= {uri(name)}
    elif kind == "close":
        workspace.close(name)


def check_order(before: tuple[Snippet, ...], after: tuple[Snippet, ...]) -> None:
    """What stays has before it what it had, less what left; what is new stands behind all that stays."""
    stayed = [snippet for snippet in before if snippet in after]
    assert list(after[: len(stayed)]) == stayed


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_whatever_happens(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    workspace = Workspace(names="abcd", lines=160)
    last: dict[str, tuple[Snippet, ...]] = {}
    for step in steps:
        take(workspace, step)
        if step[0] == "close":  # what is cut again after that is new, even if it is the same text
            last = {name: tuple(each for each in kept if each.path != f"src/{step[1]}.py") for name, kept in last.items()}
        if step[0] != "lay":
            continue
        _, name, budget = step
        snippets = workspace.snippets(name, budget)
        check_order(last.get(name, ()), snippets)
        assert workspace.snippets(name, budget) == snippets
        assert sum(len(snippet.path) + len(snippet.text) for snippet in snippets) <= budget
        assert len({snippet.text for snippet in snippets}) == len(snippets)
        for snippet in snippets:
            source = snippet.path.removeprefix("src/").removesuffix(".py")
            assert source != name
            assert uri(source) not in workspace.excluded
            assert snippet.text in workspace.documents[source].text
        last[name] = snippets


def planner_in(workspace: Workspace, name: str) -> PromptPlanner:
    document = workspace.documents[name]

    def context(budget: WindowBudget, adds: bool) -> Context:
        return workspace.context(name, int(400 * budget.chars_per_token), adds=adds)

    return PromptPlanner(
        document,
        WindowBudget(prefix_tokens=100, suffix_tokens=50, increment_tokens=60, chars_per_token=3.0),
        context=context,
        is_excluded=workspace.excluded.__contains__,
    )


def test_the_context_is_frozen_with_the_anchor() -> None:
    workspace = Workspace("b")
    planner = planner_in(workspace, "a")
    first = planner.plan(Position(50, 0)).prompt
    assert [snippet.path for snippet in first.context] == ["src/b.py"]
    workspace.edit("b", 100, "new\n")
    workspace.visit("c", 100)
    planner.edited(planner.document.apply(Edit(Position(50, 0), Position(50, 0), "x")))
    typed = planner.plan(Position(50, 1))
    assert not typed.relaid
    assert typed.prompt.context == first.context
    assert typed.prompt.prefix == first.prefix
    elsewhere = planner.plan(Position(150, 0))
    assert elsewhere.relaid
    assert "new\n" in elsewhere.prompt.context[0].text
    assert planner.plan(Position(50, 1)).prompt.context == first.context


def test_a_keystrokes_new_anchor_keeps_the_snippets_that_a_prefetch_laid() -> None:
    workspace = Workspace("b")
    planner = planner_in(workspace, "a")
    laid = planner.plan(Position(50, 0), prefetch=True).prompt.context
    workspace.visit("c", 100)
    typed = planner.plan(Position(150, 0))
    assert (typed.relaid, typed.prompt.context) == (True, laid)
    assert [snippet.path for snippet in laid] == ["src/b.py"]
    again = planner.plan(Position(20, 0), prefetch=True).prompt.context
    assert [snippet.path for snippet in again] == ["src/b.py", "src/c.py"]
    workspace.close("b")
    assert [snippet.path for snippet in planner.plan(Position(100, 0)).prompt.context] == ["src/c.py"]


def test_the_windows_do_not_shrink_for_the_context() -> None:
    workspace = Workspace()
    alone = planner_in(workspace, "a").plan(Position(100, 0)).prompt
    workspace.visit("b", 100)
    accompanied = planner_in(workspace, "a").plan(Position(100, 0)).prompt
    assert accompanied.context
    assert (accompanied.prefix, accompanied.suffix) == (alone.prefix, alone.suffix)


def test_an_anchor_with_context_that_became_excluded_is_not_used_again() -> None:
    workspace = Workspace("b")
    planner = planner_in(workspace, "a")
    assert planner.plan(Position(50, 0)).prompt.context
    workspace.excluded.add(uri("b"))
    relaid = planner.plan(Position(50, 0))
    assert relaid.relaid
    assert not relaid.prompt.context
    workspace.excluded.clear()
    assert not planner.plan(Position(50, 0)).prompt.context


def test_so_is_one_with_context_that_was_closed_before() -> None:
    workspace = Workspace("b")
    planner = planner_in(workspace, "a")
    planner.plan(Position(50, 0))
    workspace.close("b")
    assert planner.plan(Position(50, 0)).prompt.context
    workspace.excluded.add(uri("b"))
    assert not planner.plan(Position(50, 0)).prompt.context


def test_context_counts_in_the_estimate_of_characters_per_token() -> None:
    workspace = Workspace("b")
    planner = planner_in(workspace, "a")
    prompt = planner.plan(Position(100, 0)).prompt
    texts = (prompt.prefix, prompt.suffix, *(snippet.path + snippet.text for snippet in prompt.context))
    planner.observe(prompt, sum(map(len, texts)) // 3)
    assert planner.budget.chars_per_token == 3.0
