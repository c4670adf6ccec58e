"""The demo's parts, without processes: the sessions, their player, the figures and the views."""

import ast
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from rich.console import Console

from lsp_server.documents.documents import Document, Edit, Position
from lsp_server.documents.positions import ClientPosition
from midfill.demo.demo import frame, plain_line
from midfill.demo.player import OUTCOME_STYLES, Keystroke, play, report, summarize
from midfill.headless.lsp_session import Answer, ShownSuggestion, UsageReport
from midfill.replay.trace import Step, Trace, read_trace
from midfill.replay.trace import play as steps_of
from protocol.messages import CacheOutcome, Usage

SAMPLES = Path(__file__).parents[2] / "midfill" / "samples"
PYTHON, TYPESCRIPT = (read_trace(SAMPLES / f"{name}.json") for name in ("warehouse.py", "basket.ts"))
WRITTEN = '''
    def remove(self, name: str) -> None:
        """Take an item out of the warehouse."""
        if name not in self._items:
            raise UnknownItem(name)
        logging.info("removed %s", name)
        del self._items[name]
'''
Suggest = Callable[[str, Position], ShownSuggestion | None]


class Server:
    """Follows the steps as a language server does, and suggests what it is told to."""

    def __init__(self, text: str, suggest: Suggest) -> None:
        self.document = Document.from_text("file:///x", "python", 1, text)
        self.answer = Answer((), 0.0, None)
        self._suggest = suggest

    async def move(self, cursor: Position, timeout_s: float) -> None:
        self.document.check(cursor)

    async def play(self, step: Step, *, announce_move: bool) -> None:
        for edit in step.edits:
            self.document.apply(edit)
        assert self.document.text == step.text
        self.document.check(step.cursor)
        suggestion = self._suggest(step.text, step.cursor)
        self.answer = Answer((suggestion,) if suggestion else (), 0.0, None)


async def demo(suggest: Suggest, session: Trace = PYTHON) -> tuple[str, list[Keystroke]]:
    """The whole session, with the suggestion after every key from `suggest`: the text in the end, and the keys."""
    server = Server(session.start, suggest)
    keys = [key async for key in play(server, session.start, [*steps_of(session)], 0.0)]  # type: ignore[arg-type]
    return server.document.text, keys


def nothing(text: str, cursor: Position) -> None:
    return None


def oracle(text: str, cursor: Position) -> ShownSuggestion | None:
    """The rest of the line that the session is going to write, over the closers behind the cursor."""
    whole = text.split("\n")[cursor.line]
    line = whole[: cursor.column]
    known = next((each for each in WRITTEN.splitlines() if line.strip() and each.startswith(line)), None)
    rest = known.removeprefix(line) if known else ""
    return ShownSuggestion(rest, cursor, Position(cursor.line, len(whole))) if rest else None


async def test_the_session_writes_the_method() -> None:
    text, keys = await demo(nothing)
    written = PYTHON.start.replace("import json\n", "import json\nimport logging\n")
    assert text == PYTHON.end
    assert text == written.replace("        return self._items[name]\n", f"        return self._items[name]\n{WRITTEN}")
    ast.parse(text)
    labels = [key.label for key in keys]
    assert {"( auto-closed", "backspace", "Enter"} <= set(labels)
    assert [key.label for key in keys if key.kind == "jump"] == ["jump to 64", "jump to 6", "jump to 70"]


async def test_the_session_in_typescript_writes_a_method_and_a_condition() -> None:
    text, keys = await demo(nothing, TYPESCRIPT)
    method = """
    remove(name: string): Item {
        const item = this.find(name);
        this.items.delete(name);
        return item;
    }
"""
    condition = """
        if (item.count > 0) {
            basket.add(item);
        }
        basket.add(item);
"""
    assert method in text
    assert condition in text
    assert text == TYPESCRIPT.end
    assert "{ auto-closed" in [key.label for key in keys]


async def test_suggestions_that_are_right_are_accepted() -> None:
    text, keys = await demo(oracle)
    assert text == PYTHON.end
    assert sum(key.kind == "accept" for key in keys) >= 3
    assert len(keys) < len((await demo(nothing))[1])


async def test_the_first_keys_are_typed_by_hand() -> None:
    _, keys = await demo(oracle)
    assert [key.kind for key in keys[:31]] == ["jump"] + ["key"] * 30


async def test_suggestions_that_are_wrong_change_nothing_and_one_is_tried_out_and_undone() -> None:
    dice = random.Random(7)

    def guess(text: str, cursor: Position) -> ShownSuggestion | None:
        right = oracle(text, cursor)
        return ShownSuggestion("nonsense()", cursor, cursor) if right is None or dice.random() < 0.5 else right

    text, keys = await demo(guess)
    assert text == PYTHON.end
    index = next(index for index, key in enumerate(keys) if key.kind == "undo")
    assert keys[index - 1].kind == "accept"
    assert (keys[index].step.text, keys[index].cursor) == (keys[index - 2].step.text, keys[index - 2].cursor)


def keystroke(
    cache_outcome: CacheOutcome | None, recomputed: int = 1, milliseconds: float = 10.0, **changes: bool | str
) -> Keystroke:
    usage = Usage(1000, recomputed, 5, 6, 0.0, 1.0, 2.0)
    prefetch, source = bool(changes.get("prefetch")), str(changes.get("source", "core"))
    cost = (
        UsageReport("file:///x.py", 1, ClientPosition(0, 0), prefetch, source, cache_outcome, usage, 4.0)
        if cache_outcome
        else None
    )
    kind: Literal["jump", "accept", "key"] = "jump" if prefetch else "accept" if changes.get("accepted") else "key"
    cursor = Position(0, 1)
    suggestion = None if prefetch else ShownSuggestion("yz\n    more", cursor, cursor)
    step = Step(None, (Edit(Position(0, 0), Position(0, 0), "x"),), cursor, "x = 1\n")
    return Keystroke("x", kind, step, suggestion, milliseconds, cost)


RUN = [
    keystroke("partial", 600, prefetch=True),
    keystroke("hit", 1, milliseconds=10.0),
    keystroke("hit", 0, milliseconds=1.0, source="typed"),
    keystroke("partial", 300, milliseconds=40.0, accepted=True),
    keystroke(None),
]


def test_summary() -> None:
    summary = summarize(RUN)
    assert (summary.requests, summary.hits, summary.computed, summary.accepted) == (3, 2, 2, 1)
    assert (summary.recomputed_tokens, summary.prompt_tokens, summary.prefetched_tokens) == (301, 2000, 600)
    assert summary.mean_recomputed == 150.5
    assert (summary.median_ms, summary.p95_ms) == (10.0, 40.0)


def test_summary_of_nothing() -> None:
    summary = summarize([])
    assert (summary.hit_share, summary.mean_recomputed, summary.p95_ms) == (0.0, 0.0, 0.0)


def shown(renderable: object, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_frame_fits_the_terminal_and_shows_text_ghost_and_cost(width: int) -> None:
    text = shown(frame(RUN, "warehouse.py", "python"), width)
    assert max(map(len, text.splitlines())) <= min(width, 100)
    assert "1 xyz" in text
    assert "more = 1" in text
    if width >= 80:
        assert "300 of 1,000" in text


def test_plain_lines() -> None:
    words = ["x", "hit", "1", "of", "1000", "tokens", "10", "ms", "x▏«yz⏎", "more»", "=", "1"]
    assert plain_line(RUN[1]).split() == words


def test_report_states_what_was_run_and_what_was_counted() -> None:
    text = shown(report(summarize(RUN), {"psm": 612.4}, "some-model", "cpu"))
    assert "model some-model, device cpu" in text
    assert "150.5 tokens" in text
    assert "612.4 tokens  with PSM (counted)" in text


def test_good_is_calm_and_costly_is_red() -> None:
    assert {cache_outcome: style.split()[-1] for cache_outcome, style in OUTCOME_STYLES.items()} == {
        "hit": "green", "partial": "yellow", "miss": "red"
    }  # fmt: skip
