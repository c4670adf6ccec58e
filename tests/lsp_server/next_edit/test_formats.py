from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.documents.documents import Document, Position
from lsp_server.next_edit.families import FORMATS, format_named, format_of_model
from lsp_server.next_edit.formats import NewRegion, edit_of, ended, shown
from lsp_server.next_edit.regions import RegionSize
from lsp_server.next_edit.zeta import Zeta
from protocol.errors import BadInput

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
