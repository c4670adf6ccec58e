from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference.core.http.text_anchors import ANCHORS_PER_SESSION, LINES_BACK, MAX_INCREMENT_BYTES, TextAnchors, increment_start
from protocol.messages import ANONYMOUS, Prompt, Snippet

LINES = [f"x_{number} = {number * 7919}\n" for number in range(400)]
TEXT = "".join(LINES)
AFTER = "    return x\n" * 30
SESSION = "http/a.py"


def windows(prompt: Prompt) -> tuple[str, str]:
    return prompt.prefix, prompt.suffix


@given(
    st.text(alphabet="ab \n\r\x0b\u2028", max_size=300)
    | st.text(alphabet="a\n", min_size=2000, max_size=4000)
    | st.text(alphabet="a\n字😀", min_size=500, max_size=2000)
)
def test_increment_is_bounded_and_begins_at_a_line_if_it_can(text: str) -> None:
    start = increment_start(text)
    assert start <= len(text)
    assert len(text[start:].encode()) <= MAX_INCREMENT_BYTES
    overlong = len(text[text.rfind("\n") + 1 :].encode()) > MAX_INCREMENT_BYTES // 2
    assert start == 0 or text[start - 1] == "\n" or overlong


def test_increment_begins_some_lines_above_the_cursor() -> None:
    for count in range(1, 40):
        text = "".join(LINES[:count]) + "y = "
        assert text[increment_start(text) :].count("\n") == min(count, LINES_BACK)


WINDOW = st.text(alphabet="ab\n", max_size=40) | st.integers(0, 300).map(lambda cut: TEXT[cut : cut + 300])


@given(st.lists(st.tuples(WINDOW, WINDOW, st.booleans()), max_size=12))
def test_prompt_is_the_end_of_one_text_and_the_beginning_of_the_other(edits: list[tuple[str, str, bool]]) -> None:
    anchors = TextAnchors()
    for before, after, has_file in edits:
        files = (Snippet("b.py", "x"),) if has_file else ()
        prompt = anchors.prompt(SESSION, before, after, files)
        assert before.endswith(prompt.prefix + prompt.increment)
        assert after.startswith(prompt.suffix)
        assert 2 * len(prompt.prefix + prompt.increment) >= len(before)
        assert 2 * len(prompt.suffix) >= len(after)
        assert prompt.context == files


def test_windows_stay_while_lines_are_typed() -> None:
    anchors = TextAnchors()
    laid = {windows(anchors.prompt(SESSION, TEXT[:length], AFTER)) for length in range(2000, 6000)}
    assert len(laid) <= 4000 // (MAX_INCREMENT_BYTES // 2) + 1


def test_an_increment_of_long_characters_grows_no_longer_than_one_of_letters() -> None:
    anchors, text = TextAnchors(), "# 这个函数返回名称列表\n" * 200
    increments = {anchors.prompt(SESSION, text[:length], AFTER).increment for length in range(1000, len(text))}
    assert max(len(increment.encode()) for increment in increments) <= MAX_INCREMENT_BYTES
    assert len({windows(anchors.prompt(SESSION, text[:length], AFTER)) for length in range(1000, 1040)}) == 1


def test_corrections_near_the_cursor_change_no_window() -> None:
    anchors = TextAnchors()
    first = anchors.prompt(SESSION, TEXT[:4000], AFTER)
    for back in range(1, 80):
        again = anchors.prompt(SESSION, TEXT[: 4000 - back] + "y", AFTER)
        assert windows(again) == windows(first)


def test_undo_finds_the_earlier_anchor() -> None:
    anchors = TextAnchors()
    first = anchors.prompt(SESSION, TEXT[:4000], AFTER)
    moved = anchors.prompt(SESSION, TEXT[:6000], TEXT[6000:7000])
    assert windows(moved) != windows(first)
    assert anchors.prompt(SESSION, TEXT[:4000], AFTER) == first


def test_relaid_prefix_begins_where_the_earlier_one_did() -> None:
    anchors = TextAnchors()
    prompts = [anchors.prompt(SESSION, TEXT[500:length], AFTER) for length in range(3000, 9000, 50)]
    assert {prompt.prefix[:100] for prompt in prompts} == {TEXT[500:600]}


def test_files_change_alone_or_come_ahead() -> None:
    anchors = TextAnchors()
    files = (Snippet("b.py", "x = 1\n"),)
    first = anchors.prompt(SESSION, TEXT[:4000], AFTER)
    prefetch = anchors.prompt(SESSION, "", "", files, prefetch=True)
    assert (windows(prefetch), prefetch.increment, prefetch.context) == (windows(first), "", files)
    later = anchors.prompt(SESSION, TEXT[:4010], AFTER, files)
    assert (windows(later), later.context) == (windows(first), files)
    assert anchors.prompt(SESSION, TEXT[:4010], AFTER).context == ()


def test_only_what_is_made_resident_has_text_of_an_earlier_request() -> None:
    anchors = TextAnchors()
    for session in (SESSION, ANONYMOUS):
        anchors.prompt(session, TEXT[:4000], AFTER)
        assert anchors.prompt(session, "", "") == Prompt("", "")
    assert anchors.prompt(ANONYMOUS, "", "", prefetch=True) == Prompt("", "")


def test_sessions_have_anchors_of_their_own_and_few() -> None:
    anchors = TextAnchors()
    first = anchors.prompt(SESSION, TEXT[:4000], AFTER)
    assert windows(anchors.prompt("http/b.py", TEXT[:4100], AFTER)) != windows(first)
    assert windows(anchors.prompt(SESSION, TEXT[:4100], AFTER)) == windows(first)
    for number in range(ANCHORS_PER_SESSION):
        anchors.prompt(SESSION, f"y{number}\n" * 500, AFTER)
    assert windows(anchors.prompt(SESSION, TEXT[:4100], AFTER)) != windows(first)


def test_steady_files_keep_their_places_and_new_ones_wait_for_a_new_anchor() -> None:
    first, second, third = (Snippet(f"{name}.py", name) for name in "abc")
    anchors = TextAnchors()

    def context(before: str, *files: Snippet) -> tuple[Snippet, ...]:
        return anchors.prompt(SESSION, before, AFTER, files, steady=True).context

    assert context(TEXT, first, second) == (first, second)
    assert context(TEXT + "y", third, second, first) == (first, second)
    assert context(TEXT + "y", third, second) == (second,)  # never text that the request does not hold
    assert context(TEXT + "y", second, first) == (second,)
    assert context("".join(LINES[:100]), third, first, second) == (second, third, first)
