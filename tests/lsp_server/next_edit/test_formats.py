from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.documents.documents import Document, Edit, LineChange, Position
from lsp_server.next_edit.families import FORMATS, format_named, format_of_model
from lsp_server.next_edit.formats import NewRegion, NextEditFormat, edit_of, ended, next_anchor, shown
from lsp_server.next_edit.history import History
from lsp_server.next_edit.regions import GROWTH, RegionAnchor, RegionSize
from lsp_server.next_edit.sweep import SWEEP_A
from lsp_server.next_edit.zeta import ZETA_2_1, Zeta
from protocol.errors import BadInput
from protocol.messages import Snippet

TEXT = st.text("ab \n", max_size=30)


@given(TEXT, TEXT, TEXT, st.sampled_from(["\n", "\r\n"]), st.integers(0, 40))
def test_the_edit_makes_the_region_what_the_answer_says(above: str, region: str, new: str, line_end: str, size: int) -> None:
    document = Document.from_text("", "", 0, (above + region).replace("\n", line_end))
    layout = Zeta(size=RegionSize(region_bytes=size))
    row = min(above.count("\n"), len(document.lines) - 1)
    anchor = layout.anchor("m", document.lines, row)
    prompt = layout.lay(anchor, document.lines, Position(row, 0))
    before, behind = document.lines[: anchor.first], document.lines[anchor.last :]
    old = document.lines[anchor.first : anchor.last]
    change = edit_of(document.lines, prompt, NewRegion(ended(new)))
    if change is None:
        assert ended(new) == ended(shown(old))
        return
    document.apply(change.edit)
    padded = not shown(old).endswith("\n")
    wanted = ended(new)[:-1] if padded else ended(new)
    ends = line_end if any(line.endswith("\r\n") for line in old) else "\n"
    assert document.text == "".join(before) + wanted.replace("\n", ends) + "".join(behind)


@given(st.sampled_from(sorted(FORMATS)), st.text("ab \t\n\r}é", max_size=120), st.data())
def test_the_answer_that_is_drafted_changes_nothing(name: str, text: str, data: st.DataObject) -> None:
    document, layout = Document.from_text("", "", 0, text), format_named(name)
    row = data.draw(st.integers(0, len(document.lines) - 1))
    anchor = layout.anchor("m", document.lines, row)
    assert layout.keeps(anchor, document.lines, row) or row in (anchor.last - 1, anchor.last - 2, anchor.first)
    prompt = layout.lay(anchor, document.lines, Position(row, 0))
    answer = layout.read(prompt, prompt.draft, "stop")
    assert answer.region == prompt.region
    assert edit_of(document.lines, prompt, answer) is None
    assert len(prompt.parts) % 2 == 1


def test_line_ends_of_other_lines_stay() -> None:
    document = Document.from_text("", "", 0, "a\r\nb\nc\r\n")
    layout = Zeta(size=RegionSize(whole=True))
    prompt = layout.lay(layout.anchor("m", document.lines, 0), document.lines, Position(0, 0))
    assert prompt.region == "a\nb\nc\n"
    change = edit_of(document.lines, prompt, NewRegion("a\nb\nx\ny\n"))
    assert change is not None
    document.apply(change.edit)
    assert document.text == "a\r\nb\nx\r\ny\r\n"


def test_formats_are_found_by_name() -> None:
    assert list(FORMATS) == ["zeta-2", "zeta-2.1", "sweep-a", "sweep-b"]
    assert format_named("sweep-b") is FORMATS["sweep-b"]
    with pytest.raises(BadInput, match="mercury"):
        format_named("mercury")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("zed-industries/zeta-2", "zeta-2"),
        ("/models/Zeta-2.1-Q8_0.gguf", "zeta-2.1"),
        ("sweepai/sweep-next-edit-1.5B", "sweep-a"),
    ],
)
def test_a_models_format_is_known_by_its_name(model: str, name: str) -> None:
    assert format_of_model(model).name == name
    with pytest.raises(BadInput, match=r"qwen2\.5"):
        format_of_model("qwen2.5")


LINES = [f"value_{number} = compute({number})\n" for number in range(200)]


@dataclass
class Writer:
    """Types into a document, and lays a prompt after each edit."""

    layout: NextEditFormat = ZETA_2_1
    document: Document = field(default_factory=lambda: Document("m.py", "", 0, list(LINES)))
    history: History = field(default_factory=History)
    anchor: RegionAnchor | None = None
    now: float = 0.0

    def type(self, row: int, text: str, *, wait: float = 0.1) -> str:
        self.now += wait
        at_rest = self.anchor is None or self.history.closes(self.now)
        place = Position(row, len(self.document.lines[row].rstrip("\n")))
        if at_rest:
            self.lay(place, at_rest=True)
        before = list(self.document.lines)
        change = self.document.apply(Edit(place, place, text))
        self.history = self.history.edited("m.py", before, self.document.lines, change, self.now)
        self.anchor = None if self.anchor is None else self.anchor.followed(change)
        return self.lay(Position(row + text.count("\n"), 0), at_rest=False)

    def lay(self, cursor: Position, *, at_rest: bool) -> str:
        self.anchor = next_anchor(
            self.layout, "m.py", self.document.lines, cursor.line, self.history, (), self.anchor, at_rest=at_rest
        )
        return self.layout.lay(self.anchor, self.document.lines, cursor).text


def same(prompt: str, other: str) -> int:
    return next((i for i, (a, b) in enumerate(zip(prompt, other, strict=False)) if a != b), 0)


def test_a_key_changes_a_prompt_in_its_region_alone() -> None:
    writer = Writer()
    prompts = [writer.type(100, letter) for letter in "typed"]
    for prompt, other in pairwise(prompts):
        assert same(prompt, other) > prompt.index("value_100")


def test_the_event_enters_at_rest() -> None:
    writer = Writer()
    assert "edit_history" not in writer.type(100, "x")
    assert "edit_history" not in writer.type(100, "y")
    assert "+value_100 = compute(100)xy\n" in writer.type(100, "z", wait=1.0)
    assert writer.anchor is not None
    assert len(writer.anchor.events) == 1


def test_the_region_stays_at_rest_and_while_it_grows_up_to_a_half() -> None:
    writer = Writer()
    writer.type(100, "x")
    assert writer.anchor is not None
    first, lines = writer.anchor.first, writer.anchor.laid_lines
    for _ in range(int((GROWTH - 1) * lines)):
        writer.type(100, "\n", wait=1.0)
        assert writer.anchor.first == first
    writer.type(100, "\n" * 4)
    assert writer.anchor.first != first


def test_a_cursor_near_the_regions_end_gets_another_region_with_all_events() -> None:
    writer = Writer()
    writer.type(100, "x")
    assert writer.anchor is not None
    last = writer.anchor.last
    writer.type(last - 3, "y")
    assert writer.anchor.last == last
    writer.type(last - 2, "z")
    assert writer.anchor.last > last
    assert writer.anchor.events


def test_the_windows_of_sweep_move_with_the_cursor_and_keep_the_events() -> None:
    writer = Writer(SWEEP_A)
    writer.type(100, "x")
    prompt = writer.type(101, "y")
    assert "current/m.py:3:11\nvalue_99 " in prompt
    assert "original:" not in prompt
    assert "original/m.py:3:11\nvalue_99 = compute(99)\nvalue_100 = compute(100)\n" in prompt
    assert "original:" in writer.type(102, "z", wait=1.0)


ANCHOR = RegionAnchor("m.py", 10, 20, ("9\n",), ("20\n",), laid_lines=10, cuts=(4, 8))


@pytest.mark.parametrize(
    ("change", "place", "cuts"),
    [
        (LineChange(3, 1, 3), (12, 22), (4, 8)),
        (LineChange(25, 1, 3), (10, 20), (4, 8)),
        (LineChange(10, 1, 3), (10, 22), (6, 10)),
        (LineChange(14, 1, 2), (10, 21), (4, 9)),  # at the second block's first line
        (LineChange(13, 3, 1), (10, 18), (4, 6)),
        (LineChange(11, 9, 1), (10, 12), ()),
        (LineChange(9, 2, 1), None, ()),
        (LineChange(19, 2, 1), None, ()),
    ],
)
def test_an_anchor_follows_edits(change: LineChange, place: tuple[int, int] | None, cuts: tuple[int, ...]) -> None:
    followed = ANCHOR.followed(change)
    assert (None if followed is None else (followed.first, followed.last)) == place
    if followed is not None:
        assert followed.cuts == (cuts or followed.cuts)
        assert all(0 < cut < followed.last - followed.first for cut in followed.cuts)


def test_an_anchor_holds_where_the_lines_around_its_region_are_the_same_and_the_cursor_is_well_inside() -> None:
    lines = [f"{number}\n" for number in range(30)]
    assert [row for row in range(30) if ANCHOR.holds(lines, row)] == [*range(12, 18)]
    assert not ANCHOR.holds([*lines[:9], "new\n", *lines[10:]], 15)
    assert not ANCHOR.holds([*lines[:20], "new\n", *lines[20:]], 15)
    assert not ANCHOR.holds(lines[:15], 14)
    whole = replace(ANCHOR, first=0, above=(), below=(), last=30, laid_lines=30)
    assert all(whole.holds(lines, row) for row in range(30))


def test_snippets_stay_with_the_anchor() -> None:
    layout = replace(ZETA_2_1, size=RegionSize(region_bytes=300, context_bytes=60))
    first = next_anchor(layout, "m.py", LINES, 50, History(), [Snippet("o.py", "x")], None, at_rest=True)
    assert next_anchor(layout, "m.py", LINES, 50, History(), [Snippet("p.py", "y")], first, at_rest=False) is first
    later = next_anchor(layout, "m.py", LINES, 50, History(), [Snippet("p.py", "y")], first, at_rest=True)
    assert (later.first, later.last, later.snippets) == (first.first, first.last, (Snippet("p.py", "y"),))


@pytest.mark.parametrize("layout", [ZETA_2_1, SWEEP_A])
def test_lines_that_are_too_long_are_refused(layout: NextEditFormat) -> None:
    with pytest.raises(BadInput, match="40001 bytes"):
        layout.anchor("m.js", ["x" * 40_000 + "\n"], 0)
