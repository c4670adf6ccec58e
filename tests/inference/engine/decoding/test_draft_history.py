from __future__ import annotations

import pytest

from inference.engine.decoding.draft_history import BACK, MAX_SESSIONS, DraftHistories, DraftHistory, LastCompletion
from inference.text.token_ids import packed

BEFORE = "import os\n\n\ndef size_of(path):\n    return "
SAID = LastCompletion(BEFORE, "os.stat(path).st_size")


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
    assert LastCompletion().rest_after("x") == ""
    assert LastCompletion().rest_after("") == ""


def test_it_is_not_looked_for_far_before_its_place() -> None:
    far = LastCompletion("x = compute(1)\n" + "pass\n" * BACK, "text")
    assert far.rest_after("x = compute(") == ""


def test_a_suggestion_that_was_cut_short_does_not_make_the_longer_one_forgotten() -> None:
    history = DraftHistory()
    history.remember(BEFORE, "os.stat(path).st_size", packed([1, 2, 3]))
    history.remember(BEFORE + "os", ".st", packed([4]))
    assert history.suggested.rest_after(BEFORE + "os.") == "stat(path).st_size"
    assert history.suggested.token_ids == packed([1, 2, 3])
    history.remember(BEFORE + "os", ".lstat", packed([5]))
    assert history.suggested.rest_after(BEFORE + "os.") == "lstat"
    assert history.suggested.token_ids == packed([5])


def test_each_session_has_its_own_until_its_document_is_forgotten() -> None:
    histories = DraftHistories()
    for session in ("a", "one/a", "two/a"):
        histories.of(session).remember(BEFORE, "first", packed())
    histories.of("b").remember(BEFORE, "second", packed())
    assert histories.of("a").suggested.text == "first"
    histories.forget("two/a")
    histories.forget("unknown")
    for session in ("a", "one/a", "two/a"):
        assert histories.of(session).suggested == LastCompletion()
    assert histories.of("b").suggested.text == "second"


def test_sessions_that_were_not_seen_for_long_are_forgotten() -> None:
    histories = DraftHistories()
    for number in range(MAX_SESSIONS + 1):
        histories.of(str(number)).remember(BEFORE, "text", packed())
    assert histories.of(str(MAX_SESSIONS)).suggested.text == "text"
    assert histories.of("0").suggested.text == ""
