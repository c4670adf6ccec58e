from __future__ import annotations

import pytest

from inference.engine.suggestion_drafter import BACK, MAX_SESSIONS, Memories, SessionMemory, Suggested
from inference.text.token_ids import packed

BEFORE = "import os\n\n\ndef size_of(path):\n    return "
SAID = Suggested(BEFORE, "os.stat(path).st_size")


@pytest.mark.parametrize(
    ("before", "rest"),
    [
        (BEFORE, "os.stat(path).st_size"),
        (BEFORE + "os.", "stat(path).st_size"),
        (BEFORE + "os.stat(path).st_size", ""),
        (BEFORE + "pathlib", ""),
        (BEFORE[:-4], "urn os.stat(path).st_size"),  # typed back
        ("def size_of(path):\n    return os", ".stat(path).st_size"),  # the window begins elsewhere
        ("import sys", ""),
        ("", ""),
    ],
)
def test_the_rest_is_found_by_the_text_before_the_cursor(before: str, rest: str) -> None:
    assert SAID.rest_after(before) == rest


def test_nothing_is_remembered_at_first() -> None:
    assert Suggested().rest_after("x") == ""
    assert Suggested().rest_after("") == ""


def test_it_is_not_looked_for_far_before_its_place() -> None:
    far = Suggested("x = compute(1)\n" + "pass\n" * BACK, "text")
    assert far.rest_after("x = compute(") == ""


def test_a_suggestion_that_was_cut_short_does_not_make_the_longer_one_forgotten() -> None:
    memory = SessionMemory()
    memory.remember(BEFORE, "os.stat(path).st_size", packed([1, 2, 3]))
    memory.remember(BEFORE + "os", ".st", packed([4]))
    assert memory.suggested.rest_after(BEFORE + "os.") == "stat(path).st_size"
    assert memory.suggested.token_ids == packed([1, 2, 3])
    memory.remember(BEFORE + "os", ".lstat", packed([5]))
    assert memory.suggested.rest_after(BEFORE + "os.") == "lstat"
    assert memory.suggested.token_ids == packed([5])


def test_each_session_has_its_own_until_its_document_is_forgotten() -> None:
    memories = Memories()
    for session in ("a", "one/a", "two/a"):
        memories.of(session).remember(BEFORE, "first", packed())
    memories.of("b").remember(BEFORE, "second", packed())
    assert memories.of("a").suggested.text == "first"
    memories.forget("two/a")
    memories.forget("unknown")
    for session in ("a", "one/a", "two/a"):
        assert memories.of(session).suggested == Suggested()
    assert memories.of("b").suggested.text == "second"


def test_sessions_that_were_not_seen_for_long_are_forgotten() -> None:
    memories = Memories()
    for number in range(MAX_SESSIONS + 1):
        memories.of(str(number)).remember(BEFORE, "text", packed())
    assert memories.of(str(MAX_SESSIONS)).suggested.text == "text"
    assert memories.of("0").suggested.text == ""
