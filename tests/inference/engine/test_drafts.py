from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.backends.model import Choice
from inference.engine.drafts import (
    BACK,
    LONGEST_RUN,
    MAX_SESSIONS,
    MOST_DRAFTED,
    SHORTEST_RUN,
    Copy,
    Drafter,
    DraftHistories,
    DraftHistory,
    LastCompletion,
    Odds,
    agreeing,
)
from inference.engine.sessions import session_key
from inference.text.token_ids import TokenIds, packed

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
    for session in map(session_key, ("a", "one/a", "two/a")):
        histories.of(session).remember(BEFORE, "first", packed())
    histories.of(session_key("b")).remember(BEFORE, "second", packed())
    assert histories.of(session_key("a")).suggested.text == "first"
    histories.forget("a")
    histories.forget("unknown")
    for session in map(session_key, ("a", "one/a", "two/a")):
        assert histories.of(session).suggested == LastCompletion()
    assert histories.of(session_key("b")).suggested.text == "second"


def test_sessions_that_were_not_seen_for_long_are_forgotten() -> None:
    histories = DraftHistories()
    for number in range(MAX_SESSIONS + 1):
        histories.of(session_key(str(number))).remember(BEFORE, "text", packed())
    assert histories.of(session_key(str(MAX_SESSIONS))).suggested.text == "text"
    assert histories.of(session_key("0")).suggested.text == ""


ROOM = 100
NEWLINE = ord("\n")


def drafter(seen: str, rest: str = "", of_rest: float = 0.9, of_repetition: float = 0.9) -> Drafter:
    """One for text whose tokens are its characters; a newline ends it."""
    return Drafter(encode(seen), rest, encode, lambda token_id: token_id == NEWLINE, Odds(of_rest), Odds(of_repetition))


def encode(text: str) -> TokenIds:
    return packed(map(ord, text))


def said(token_ids: Iterable[int]) -> str:
    return "".join(map(chr, token_ids))


def test_the_rest_of_the_last_suggestion_comes_first() -> None:
    guess = drafter("import os; import ", "numpy as np")
    assert said(guess.draft("", ROOM)) == "numpy as np"
    assert said(guess.draft("num", ROOM)) == "py as np"
    assert said(guess.draft("numpy as np", ROOM)) == "os; import "  # there is no more of it
    assert said(guess.draft("sys", ROOM)) == "os; import "  # the model says something else


def test_what_followed_the_last_tokens_before_is_guessed() -> None:
    assert said(drafter("first.value + second.va").draft("", ROOM)) == "lue + second.va"
    assert said(drafter("abXYc abc; dXYe; XY").draft("", ROOM)) == "e; XY"  # the later place
    assert said(drafter("XYZab; Zab, Zab; XYZab").draft("", ROOM)) == "; Zab, Zab; XYZ"  # the longer run
    assert drafter("abc").draft("", ROOM) == packed()
    assert drafter("a").draft("", ROOM) == packed()
    assert drafter("").draft("", ROOM) == packed()


@given(seen=st.text("ab", max_size=60))
def test_a_guess_stands_where_the_last_tokens_stood_before(seen: str) -> None:
    draft = said(drafter(seen).draft("", ROOM))
    runs = [seen[-length:] for length in range(SHORTEST_RUN, min(LONGEST_RUN, len(seen) - 1) + 1)]
    found = [run for run in runs if run in seen[:-1]]
    assert bool(draft) == bool(found)
    if found:
        assert found[-1] + draft in seen + draft[:0]
        assert seen.rfind(found[-1], 0, len(seen) - 1) == seen.rfind(found[-1] + draft)


def test_tokens_of_several_bytes_are_not_confused() -> None:
    ids = packed([0x0101, 0x0100, 0x010000, 7, 0x0101, 0x0100])  # their bytes overlap
    guess = Drafter(ids, "", encode, lambda _: False, Odds(0.9), Odds(0.9))
    assert guess.draft("", ROOM) == packed([0x010000, 7, 0x0101, 0x0100])


def test_generated_tokens_belong_to_the_text() -> None:
    guess = drafter("x = [")
    for character in "(1, 2), (":
        guess.verified(encode(character), right=0)
    assert said(guess.draft("", 2)) == ""
    guess.verified(encode("1"), right=0)
    assert said(guess.draft("", 5)) == ", 2),"


def test_nothing_is_guessed_beyond_the_room_or_the_end() -> None:
    assert said(drafter("", "some words").draft("", 3)) == "som"
    assert drafter("", "some words").draft("", 0) == packed()
    assert drafter("", "some words").draft("", -1) == packed()
    assert said(drafter("", "end\nnext line").draft("", ROOM)) == "end"


def test_guesses_that_come_true_make_longer_ones() -> None:
    guess = drafter("", "0123456789" * 10, of_rest=0.5)
    lengths, text = [], ""
    for _ in range(6):
        draft = guess.draft(text, ROOM)
        guess.verified(draft, right=len(draft))
        text += said(draft)
        lengths.append(len(draft))
    assert lengths == sorted(lengths)
    assert (lengths[0], lengths[-1]) == (2, MOST_DRAFTED)


def test_guesses_that_fail_are_given_up_and_tried_again_later() -> None:
    odds = Odds(0.5)
    failed = 0
    while odds.worthwhile:
        odds.note(odds.worthwhile, right=0)
        failed += 1
    assert failed <= 5
    rested = 0
    while not odds.worthwhile:
        odds.note(0, right=0)
        rested += 1
    assert 5 <= rested <= 100


@given(notes=st.lists(st.tuples(st.integers(0, MOST_DRAFTED), st.integers(0, MOST_DRAFTED)), max_size=200))
def test_the_odds_stay_odds(notes: list[tuple[int, int]]) -> None:
    odds = Odds(0.9)
    for drafted, right in notes:
        odds.note(drafted, min(drafted, right))
        assert 0 < odds.probability < 1
        assert 0 <= odds.worthwhile <= MOST_DRAFTED


@pytest.mark.parametrize(("draft", "right"), [((), 0), ((1,), 1), ((1, 2), 2), ((1, 3), 1), ((3, 2), 0)])
def test_guesses_are_right_up_to_the_first_wrong_one(draft: tuple[int, ...], right: int) -> None:
    choices = [Choice(token_id, 0.0) for token_id in (1, 2, 3)]
    assert agreeing(draft, choices) == right


def copy_of(text: str) -> Copy:
    return Copy(encode(text), lambda token_id: token_id == NEWLINE)


def after(copy: Copy, written: str, most: int = ROOM) -> str:
    """What the copy goes on with, behind what was written."""
    copy.take(encode(written))
    return said(copy.next(most))


OLD = "first = one(1)\nsecond = two(2)\nthird = three(3)\n"


def test_a_copy_begins_at_the_first_token() -> None:
    assert after(copy_of(OLD), "", 5) == "first"
    assert after(copy_of(OLD), "first = ", 3) == "one"


@pytest.mark.parametrize(
    ("written", "goes_on"),
    [
        ("first = X", "ne(1)"),  # as if a token were replaced
        ("first = one(1, 9)\n", "second"),  # the line differed: at its end, the next one
        ("first = one(1)\nnew\n", "second"),  # a line was inserted
        ("first = one(1)\nthird = ", "three"),  # one was left out
        ("second = ", "two"),  # the first was
    ],
)
def test_behind_a_difference_the_place_is_found_again(written: str, goes_on: str) -> None:
    assert after(copy_of(OLD), written, len(goes_on)) == goes_on


def test_a_copy_is_unsure_until_two_tokens_were_right() -> None:
    copy = copy_of(OLD)
    for written, sure in (("first = ", True), ("X", False), ("n", False), ("e", True)):
        copy.take(encode(written))
        assert copy.is_sure == sure


@given(old=st.text("ab\n", max_size=40), written=st.text("abc\n", max_size=40))
def test_whatever_is_written_a_copy_stays_in_its_text(old: str, written: str) -> None:
    assert after(copy_of(old), written) in old
    assert after(copy_of(old), old) == ""


def test_a_copy_comes_before_what_was_said_earlier_and_behind_the_last_suggestion() -> None:
    seen = "first = wrong\nfirst"
    guess = Drafter(encode(seen), "", encode, lambda _: False, Odds(0.9), Odds(0.9), copy_of(OLD))
    assert said(guess.draft("", ROOM)) == OLD[:MOST_DRAFTED]
    guess.verified(encode("first = X"), right=8)
    assert said(guess.draft("first = X", ROOM)) == "ne(1)\nse"  # not as many, where it is unsure
    suggested = Drafter(encode(seen), "said before", encode, lambda _: False, Odds(0.9), Odds(0.9), copy_of(OLD))
    assert said(suggested.draft("", ROOM)) == "said before"


def test_wrong_guesses_of_where_a_copy_goes_on_leave_its_odds() -> None:
    odds = Odds(0.9)
    guess = Drafter(packed(), "", encode, lambda _: False, Odds(0.9), Odds(0.9), copy_of(OLD), odds)
    guess.draft("", ROOM)
    guess.verified(encode("f#"), right=1)
    spoiled = odds.probability
    for _ in range(5):
        assert guess.draft("", ROOM)
        guess.verified(encode("#"), right=0)
    assert odds.probability == spoiled
