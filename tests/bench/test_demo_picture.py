"""The README's picture: the session that it shows, one row in each place, and a telling one where nothing moves."""

import re
from pathlib import Path
from xml.etree import ElementTree

from bench.demo_picture import write_picture
from bench.demo_session import SESSION, Keystroke, Kind, play
from lsp_server.documents.documents import Document, Position
from lsp_server.documents.positions import ClientPosition
from midfill.headless.lsp_session import Answer, ShownSuggestion, UsageReport
from midfill.replay.trace import Step, read_trace
from midfill.replay.trace import play as steps_of
from protocol.messages import CacheOutcome, Usage


class Server:
    """Follows the steps as a language server does, and suggests the rest of a line that the session will write."""

    def __init__(self, text: str, written: list[str]) -> None:
        self.document = Document.from_text("file:///x", "typescript", 1, text)
        self.answer = Answer((), 0.0, None)
        self._written = written

    async def move(self, cursor: Position, timeout_s: float) -> None:
        self.document.check(cursor)

    async def play(self, step: Step, *, announce_move: bool) -> None:
        for edit in step.edits:
            self.document.apply(edit)
        assert self.document.text == step.text
        whole = step.text.split("\n")[step.cursor.line]
        line = whole[: step.cursor.column]
        known = next((each for each in self._written if line.strip() and each.startswith(line)), line)
        suggestion = ShownSuggestion(known.removeprefix(line), step.cursor, Position(step.cursor.line, len(whole)))
        self.answer = Answer((suggestion,) if suggestion.text else (), 0.0, None)


async def test_the_session_is_typed_and_right_suggestions_are_accepted() -> None:
    session = read_trace(SESSION)
    assert session.end is not None
    for written in ([], session.end.split("\n")):
        server = Server(session.start, written)
        keys = [key async for key in play(server, session.start, [*steps_of(session)], 0.0)]  # type: ignore[arg-type]
        assert server.document.text == session.end
        assert [key.kind for key in keys[:31]] == ["jump"] + ["key"] * 30  # the first ones are typed by hand
        assert any(key.kind == "accept" for key in keys) == bool(written)


def keystroke(outcome: CacheOutcome | None, recomputed: int = 1, kind: Kind = "key") -> Keystroke:
    usage = Usage(1000, recomputed, 5, 6, 0.0, 1.0, 2.0)
    is_jump, cursor = kind == "jump", Position(0, 1)
    cost = outcome and UsageReport("file:///x.py", 1, ClientPosition(0, 0), is_jump, "core", outcome, usage, 4.0)
    suggestion = None if is_jump else ShownSuggestion("yz\n    more", cursor, cursor)
    return Keystroke("x", kind, Step(None, (), cursor, "x = 1\n"), suggestion, cost)


RUN = [
    keystroke("partial", 600, "jump"),
    keystroke("hit", 1),
    keystroke("hit", 0),
    keystroke("partial", 300, "accept"),
    keystroke(None),
]


def visible(element: str, second: float) -> bool:
    """Whether an element of the picture is seen at this time."""
    animated = re.search(r'values="([^"]+)" keyTimes="([^"]+)" dur="([\d.]+)s"', element)
    if animated is None:
        return True
    times = [float(time) * float(animated[3]) for time in animated[2].split(";")]
    return dict(zip(times, animated[1].split(";"), strict=True))[max(t for t in times if t <= second)] == "visible"


def test_picture(tmp_path: Path) -> None:
    path = tmp_path / "demo.svg"
    write_picture(path, RUN, "warehouse.py", "python")
    svg = path.read_text(encoding="utf-8")
    ElementTree.fromstring(svg)
    assert "warehouse.py" in svg
    rows = [line for line in svg.splitlines() if line.startswith('<g transform="translate(0 ')]
    places = [re.search(r"translate\(0 (\d+)\)", row)[1] for row in rows]  # type: ignore[index]
    for second in (0.0, 0.75, 5.0):
        seen = [place for row, place in zip(rows, places, strict=True) if visible(row, second)]
        assert len(seen) == len(set(seen))  # each place has one row at a time
    costs = {second: "".join(row for row in rows if visible(row, second)) for second in (0.0, 0.75)}
    assert "600 of 1,000" in costs[0.0]  # a prefetch, which is shown first
    assert "300 of 1,000" not in costs[0.0]
    assert "1 of 1,000" in costs[0.75]
    still = "".join(row for row in rows if 'visibility="hidden"' not in row)
    assert "more" in still  # a suggestion
    assert "600 of 1,000" not in still
