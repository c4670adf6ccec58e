from __future__ import annotations

from dataclasses import replace

import pytest

from lsp_server.documents.documents import Position, split_lines
from lsp_server.next_edit.formats import NewRegion
from lsp_server.next_edit.gate import (
    MAX_REFUSED,
    Hunk,
    Moment,
    Proposal,
    Trigger,
    back_off_s,
    is_bulk,
    proposal_of,
    reason_not_to_ask,
    reason_not_to_show,
    refuse,
)
from lsp_server.next_edit.history import Event
from lsp_server.next_edit.regions import RegionSize
from lsp_server.next_edit.zeta import Zeta

AT_REST = Moment(trigger="pause")


@pytest.mark.parametrize("trigger", ["pause", "acceptance", "jump", "command"])
def test_it_asks_after_an_edit(trigger: Trigger) -> None:
    assert reason_not_to_ask(replace(AT_REST, trigger=trigger)) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"changed": False}, "nothing was edited"),
        ({"changed": False, "trigger": "command"}, "nothing was edited"),
        ({"trigger": "jump", "since_edit_s": 11.0}, "the last edit is too old"),
        ({"undone": True}, "after undo"),
        ({"bulk": True}, "after a bulk change"),
        ({"rejections": 1, "since_rejection_s": 4.0}, "after a rejection"),
        ({"rejections": 3, "since_rejection_s": 19.0}, "after a rejection"),
    ],
)
def test_why_it_does_not_ask(changes: dict[str, object], reason: str) -> None:
    assert reason_not_to_ask(replace(AT_REST, **changes)) == reason  # type: ignore[arg-type]


def test_a_command_passes_what_protects_from_haste() -> None:
    assert reason_not_to_ask(replace(AT_REST, trigger="command", bulk=True, rejections=2, since_rejection_s=0.0)) is None


def test_the_back_off_doubles_and_ends() -> None:
    assert [back_off_s(count) for count in (0, 1, 2, 3, 7, 99)] == [0.0, 5.0, 10.0, 20.0, 320.0, 320.0]
    assert reason_not_to_ask(replace(AT_REST, rejections=1, since_rejection_s=5.0)) is None
    assert (is_bulk(199, 7), is_bulk(200, 0), is_bulk(0, 8)) == (False, True, True)


TEXT = "import os\n\n\ndef f(a):\n    x = a + 1\n    return x\n\n\nprint(f(1))\n"
BEHIND = "print(f(2))\nprint(f(3))\n"


def proposal(new: str, events: tuple[Event, ...] = (), refused: tuple[Hunk, ...] = ()) -> Proposal:
    lines = split_lines("# above\n" + TEXT + BEHIND)
    layout = Zeta(size=RegionSize(region_bytes=len(TEXT)))
    anchor = replace(layout.anchor("m.py", lines, 6), first=1, last=TEXT.count("\n") + 1, above=())
    prompt = layout.lay(anchor, lines, Position(6, 0))
    return proposal_of(lines, prompt, NewRegion(new), Position(6, 0), events, refused)


EVENT = Event("m.py", 4, ("    x = a\n",), ("    x = a + 1\n",))
LONG = "".join(f"    y{number} = {number}\n" for number in range(21))


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (TEXT.replace("a + 1", "a + 2"), None),
        (TEXT.replace("    return x\n", ""), None),
        (TEXT, "no edit"),
        (TEXT.replace("    return x", "\treturn  x  "), "only layout"),
        (TEXT.replace("return x", "{ return x; }"), "only layout"),
        (TEXT.replace("a + 1", "a + 2").replace("import os\n", "import os\n\n"), None),  # a blank line repeats nothing
        (TEXT.replace("return x", "x = a + 1"), None),  # a line that becomes as its neighbour is not inserted
        (TEXT.replace("return x", "x = a"), None),  # what another line was
        (TEXT.replace("x = a + 1", "x = a"), "takes an edit back"),
        (TEXT.replace("x = a + 1", "x = a").replace("f(1)", "f(9)"), "takes an edit back"),
        (TEXT[: TEXT.index("    return")], "the end is missing"),
        (TEXT[: TEXT.index("(f(1))")] + "\n", "the end is missing"),
        (TEXT[: TEXT.index("    return")].replace("import os", "import re"), "the end is missing"),
        (TEXT[: TEXT.index("    return")].replace("a + 1", "a + 2"), "the end is missing"),
        (TEXT[: TEXT.index("    x")] + "    return a\n\n\nprint(1)\n", None),
        (TEXT.replace("print(f(1))", "print(f").replace("import os", "import re"), None),
        (TEXT + "print(f(2))\n", "repeats what stands there"),
        (
            TEXT.replace("    return x\n", "    return x\n\n\ndef f(a):\n    x = a + 1\n    return x\n"),
            "repeats what stands there",
        ),
        (TEXT.replace("    return", LONG + "    return"), "too long"),
    ],
)
def test_why_an_answer_is_not_shown(new: str, reason: str | None) -> None:
    whole = replace(EVENT, first=3, old=("def f(a):\n", "    x = a\n"), new=("def f(a):\n", "    x = a + 1\n"))
    for event in (EVENT, whole):
        events = (event, Event("o.py", 0, ("import os\n",), ("import sys\n",)))
        assert reason_not_to_show(proposal(new, events)) == reason


def test_a_line_is_not_taken_back_beside_others_nor_past_a_pause() -> None:
    line, typed, done = ("    x = a\n",), ("    x = a + \n",), ("    x = a + 1\n",)
    paused = Event("m.py", 4, line, typed), Event("m.py", 4, typed, done)
    taken_back = proposal(TEXT.replace("x = a + 1\n    return x", "x = a\n    return a"), paused)
    assert reason_not_to_show(taken_back) == "takes an edit back"


def test_lines_far_above_the_cursor_are_not_rewritten() -> None:
    old, new = tuple("abcdefgh"), (*"ABCDEF", "g", "h")
    assert reason_not_to_show(Proposal(old, new, 6, (), ())) == "rewrites what is above"
    assert reason_not_to_show(Proposal(old, new, 5, (), ())) is None
    assert proposal(TEXT).row == 5


def test_what_another_document_lost_may_be_written_here() -> None:
    assert reason_not_to_show(proposal(TEXT.replace("a + 1", "a"), (replace(EVENT, path="o.py"),))) is None


@pytest.mark.parametrize(
    ("old", "new", "shows"),
    [("return x", "rereturn x", True), ("return x", "return y", False), ("f", "foo", False), ("if x", "elif x", False)],
)
def test_a_spoiled_keyword_may_be_mended(old: str, new: str, shows: bool) -> None:
    line = "    return x"
    event = Event("m.py", 0, (old + "\n",), (new + "\n",))
    mended = Proposal((new, line), (old, line), 0, (), (event,))
    assert reason_not_to_show(mended) == (None if shows else "takes an edit back")


def test_what_was_refused_is_not_shown_again_wherever_it_moves() -> None:
    wanted = TEXT.replace("a + 1", "a + 2")
    refused = refuse((), proposal(wanted))
    assert reason_not_to_show(proposal(wanted, refused=refused)) == "was refused"
    assert reason_not_to_show(proposal(wanted.replace("import os\n", ""), refused=refused)) == "was refused"
    assert len(refuse([Hunk(0, (), (str(n),)) for n in range(30)], proposal(wanted))) == MAX_REFUSED
