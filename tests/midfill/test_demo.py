"""The demo's parts, without processes: the editor, the typist, the figures and the views."""

import ast
import io
import random
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from lsp_server.editing.documents import Document, Position
from lsp_server.editing.positions import ClientPosition
from midfill.demo.editor import Editor, KeyPress
from midfill.demo.picture import write_picture
from midfill.demo.player import Keystroke
from midfill.demo.report import HEAT_STYLES, report, summarize
from midfill.demo.script import SCENES, Backspace, Jump, Scene, Type
from midfill.demo.typist import Typist
from midfill.demo.views import frame, plain_line
from midfill.headless.lsp_values import Suggestion, UsageReport
from protocol.errors import BadInput
from protocol.heat import Heat
from protocol.messages import Usage

PYTHON, TYPESCRIPT = SCENES["python"], SCENES["typescript"]
WRITTEN = '''
    def remove(self, name: str) -> None:
        """Take an item out of the warehouse."""
        if name not in self._items:
            raise UnknownItem(name)
        logging.info("removed %s", name)
        del self._items[name]
'''


def editor_at(marked: str) -> Editor:
    """An editor with the text, the cursor where ║ stands."""
    before, _, after = marked.partition("║")
    editor = Editor(Document.from_text("file:///x.py", "python", 1, before + after))
    editor.move(Position(before.count("\n"), len(before.rpartition("\n")[2])))
    return editor


def marked(editor: Editor) -> str:
    lines = list(editor.document.lines)
    line, column = editor.cursor
    lines[line] = lines[line][:column] + "║" + lines[line][column:]
    return "".join(lines)


@pytest.mark.parametrize(
    ("before", "keys", "after"),
    [
        ("f║", "(", "f(║)"),
        ("f║", "(x)", "f(x)║"),
        ("f║x", "(", "f(║x"),  # before a word nothing is closed
        ("f(║)", "[", "f([║])"),
        ("if x:║", "\n", "if x:\n    ║"),
        ("    pass║\n", "\n", "    pass\n    ║\n"),
        ("  f({║})", "\n", "  f({\n      ║\n  })"),  # a pair's closer goes below
        ("    pass\n    ║\n", "\n", "    pass\n\n    ║\n"),  # no white space stays on the blank line
        ("║", "\t", "    ║"),
    ],
)
def test_typing(before: str, keys: str, after: str) -> None:
    editor = editor_at(before)
    for key in keys:
        editor.type_character(key)
    assert marked(editor) == after


@pytest.mark.parametrize(
    ("before", "after"), [("ab║", "a║"), ("f(║)", "f║"), ("        ║x", "    ║x"), ("      ║x", "    ║x")]
)
def test_backspace(before: str, after: str) -> None:
    editor = editor_at(before)
    editor.backspace()
    assert marked(editor) == after


def test_backspace_at_the_start_of_a_line_is_refused() -> None:
    with pytest.raises(BadInput, match="nothing to delete"):
        editor_at("x\n║").backspace()


def test_accepting_replaces_what_the_suggestion_covers_and_undo_takes_it_back() -> None:
    editor = editor_at("f(║)\n")
    editor.accept("a,\n  b)", Position(0, 3))
    assert marked(editor) == "f(a,\n  b)║\n"
    editor.undo()
    assert marked(editor) == "f(║)\n"
    with pytest.raises(BadInput, match="nothing to undo"):
        editor_at("║").undo()


def play(suggest: Callable[[Editor], Suggestion | None], scene: Scene = PYTHON) -> tuple[Editor, list[KeyPress]]:
    """The whole script, with the suggestion after every key from `suggest`."""
    editor = Editor(Document.from_text("file:///x", scene.language, 1, scene.text))
    typist = Typist(editor)
    presses = []
    for press in typist.keys(scene.script):
        presses.append(press)
        typist.shown = suggest(editor)
    return editor, presses


def oracle(editor: Editor) -> Suggestion | None:
    """The rest of the line that the script is going to write."""
    line = editor.document.lines[editor.cursor.line][: editor.cursor.column]
    known = next((each for each in WRITTEN.splitlines() if line.strip() and each.startswith(line)), None)
    rest = known.removeprefix(line) if known else ""
    return Suggestion(rest, editor.cursor, editor.cursor) if rest else None


def written_by_hand() -> str:
    text = PYTHON.text.replace("import json\n", "import json\nimport logging\n")
    return text.replace("        return self._items[name]\n", f"        return self._items[name]\n{WRITTEN}")


def test_the_script_writes_the_method() -> None:
    editor, presses = play(lambda _: None)
    assert editor.document.text == written_by_hand()
    ast.parse(editor.document.text)
    labels = [press.label for press in presses]
    assert "( auto-closed" in labels
    assert ") typed over" in labels
    assert "backspace" in labels
    assert sum(press.jumped for press in presses) == 3


def test_the_script_in_typescript_writes_a_method_and_a_condition() -> None:
    editor, presses = play(lambda _: None, TYPESCRIPT)
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
    assert method in editor.document.text
    assert condition in editor.document.text
    assert editor.document.text.count("{") == editor.document.text.count("}")
    assert "{ auto-closed" in [press.label for press in presses]


def test_suggestions_that_are_right_are_accepted() -> None:
    editor, presses = play(oracle)
    assert editor.document.text == written_by_hand()
    assert sum(press.accepted for press in presses) >= 3
    assert len(presses) < len(play(lambda _: None)[1])


def test_suggestions_that_are_wrong_change_nothing() -> None:
    dice = random.Random(7)

    def guess(editor: Editor) -> Suggestion | None:
        right = oracle(editor)
        if right is None or dice.random() < 0.5:
            return Suggestion("nonsense()", editor.cursor, editor.cursor)
        return right

    assert play(guess)[0].document.text == written_by_hand()


def test_the_script_says_where_it_does_not_fit() -> None:
    typist = Typist(editor_at("║x = 1\n"))
    with pytest.raises(BadInput, match="'import json' is not in"):
        list(typist.keys([Type("y"), Backspace(1), Jump("import json")]))


def keystroke(heat: Heat | None, recomputed: int = 1, milliseconds: float = 10.0, **changes: bool | str) -> Keystroke:
    usage = Usage(1000, recomputed, 5, 6, 0.0, 1.0, 2.0)
    ahead, source = bool(changes.get("ahead")), str(changes.get("source", "core"))
    cost = UsageReport("file:///x.py", 1, ClientPosition(0, 0), ahead, source, heat, usage, 4.0) if heat else None
    press = KeyPress("x", None, jumped=ahead, accepted=bool(changes.get("accepted")))
    cursor = Position(0, 1)
    suggestion = None if ahead else Suggestion("yz\n    more", cursor, cursor)
    return Keystroke(press, cursor, ("x = 1\n", ""), suggestion, milliseconds, cost)


RUN = [
    keystroke("warm", 600, ahead=True),
    keystroke("hot", 1, milliseconds=10.0),
    keystroke("hot", 0, milliseconds=1.0, source="typed"),
    keystroke("warm", 300, milliseconds=40.0, accepted=True),
    keystroke(None),
]


def test_summary() -> None:
    summary = summarize(RUN)
    assert (summary.requests, summary.hot, summary.computed, summary.accepted) == (3, 2, 2, 1)
    assert (summary.recomputed_tokens, summary.prompt_tokens, summary.ahead_tokens) == (301, 2000, 600)
    assert summary.mean_recomputed == 150.5
    assert (summary.median_ms, summary.p95_ms) == (10.0, 40.0)


def test_summary_of_nothing() -> None:
    summary = summarize([])
    assert (summary.hot_share, summary.mean_recomputed, summary.p95_ms) == (0.0, 0.0, 0.0)


def shown(renderable: object, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_frame_fits_the_terminal_and_shows_text_ghost_and_cost(width: int) -> None:
    text = shown(frame(RUN, PYTHON), width)
    assert max(map(len, text.splitlines())) <= min(width, 100)
    assert "1 xyz" in text
    assert "more = 1" in text
    if width >= 80:
        assert "300 of 1,000" in text


def test_plain_lines() -> None:
    words = ["x", "hot", "1", "of", "1000", "tokens", "10", "ms", "x▏«yz⏎", "more»", "=", "1"]
    assert plain_line(RUN[1]).split() == words


def test_report_states_what_was_run_and_what_was_counted() -> None:
    text = shown(report(summarize(RUN), {"psm": 612.4}, "some-model", "cpu"))
    assert "model some-model, device cpu" in text
    assert "150.5 tokens" in text
    assert "612.4 tokens  with PSM (counted)" in text


def visible(element: str, second: float) -> bool:
    """Whether an element of the picture is seen at this time."""
    animated = re.search(r'values="([^"]+)" keyTimes="([^"]+)" dur="([\d.]+)s"', element)
    if animated is None:
        return True
    times = [float(time) * float(animated[3]) for time in animated[2].split(";")]
    return dict(zip(times, animated[1].split(";"), strict=True))[max(t for t in times if t <= second)] == "visible"


def test_picture(tmp_path: Path) -> None:
    path = tmp_path / "demo.svg"
    write_picture(path, RUN, PYTHON)
    svg = path.read_text(encoding="utf-8")
    ElementTree.fromstring(svg)
    assert "warehouse.py" in svg
    rows = [line for line in svg.splitlines() if line.startswith('<g transform="translate(0 ')]
    places = [re.search(r"translate\(0 (\d+)\)", row)[1] for row in rows]  # type: ignore[index]
    for second in (0.0, 0.75, 5.0):
        seen = [place for row, place in zip(rows, places, strict=True) if visible(row, second)]
        assert len(seen) == len(set(seen))  # each place has one row at a time
    costs = {second: "".join(row for row in rows if visible(row, second)) for second in (0.0, 0.75)}
    assert "600 of 1,000" in costs[0.0]  # ahead work, which is shown first
    assert "300 of 1,000" not in costs[0.0]
    assert "1 of 1,000" in costs[0.75]
    still = "".join(row for row in rows if 'visibility="hidden"' not in row)
    assert "more" in still  # a suggestion
    assert "600 of 1,000" not in still


def test_good_is_calm_and_costly_is_warm() -> None:
    assert {heat: style.split()[-1] for heat, style in HEAT_STYLES.items()} == {
        "hot": "green", "warm": "yellow", "cold": "red"
    }  # fmt: skip
