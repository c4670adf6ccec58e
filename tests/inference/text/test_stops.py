from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.text.stops import MOST_CHARS, Stops, Suffix, first_lines
from protocol.messages import StopRule


@pytest.mark.parametrize(
    ("suffix", "lines"),
    [
        ("", ""),
        ("b)\nc", "b)"),  # the rest of the line has a word character
        (")\n    return x\n", ")\n    return x"),  # brackets alone say too little
        ("\n\n  }\n  done()\n", "\n\n  }\n  done()"),
        ("\nx\ny\nz\n", "\nx\ny\nz"),  # three word characters, below the line
        ("\r\n  done()\r\n", "\r\n  done()"),
        (")\n}\n", ""),
        ("\n" * 3, ""),
        ("ending", "ending"),
        ("</div>", ""),  # a completion may close what it has opened
        (" end\nreturn x", " end\nreturn x"),
        ("</b> text", "</b> text"),
    ],
)
def test_lines_of_the_suffix_that_a_text_can_reach(suffix: str, lines: str) -> None:
    assert first_lines(suffix) == lines


@pytest.mark.parametrize(
    ("text", "suffix", "kept", "goes_on"),
    [
        ("x, b)\nprint()", "b)\n", "x, ", False),  # before the rest of the line
        ("x, b) + 1\n", "b)\n", "x, b) + 1\n", True),  # a line that goes on is another one
        ("x, b)", "b)\n", "x, ", True),  # at its end the text may have reached the suffix too
        ("1)\n", ")\n", "1)\n", True),
        ("if a:\n        b()\n    return a\n", "\n    return a\n", "if a:\n        b()", False),
        ("if a:\n        return a\n", "\n    return a\n", "if a:\n        return a\n", True),  # deeper
        ("a\r\n    done()\r\n", "\r\n    done()\r\n", "a", False),
        ("a" + "b" * 300, "b" * 300, "a", False),  # a long line counts by its beginning
        ("a" + "b" * 200, "b" * 300, "a" + "b" * 200, True),
    ],
)
def test_text_ends_where_the_suffix_begins(text: str, suffix: str, kept: str, goes_on: bool) -> None:
    stops = Stops(StopRule(indent=0), suffix=suffix)
    end = stops.find(text)
    assert (end is None) == goes_on
    assert (stops.last(text, "eos")[0] if end is None else text[:end]) == kept


@pytest.mark.parametrize(
    ("text", "rest", "kept"),
    [
        ("e in l if e >= 0]\n\n", "if e > 0]", "e in l "),  # the line goes on in another way
        ("a = value + other", "value + 1", "a = "),
        ("value = value + other", "value + 1", "value = "),  # nothing would be left before the first one
        ("    value + other", "value + 1", "    value + other"),
        ("a b c", "b d", "a b c"),  # too short to tell
        ("the itself = 3", "self.x)", "the itself = 3"),  # within another word
        ("print(total)", "int(x)", "print(total)"),
        ("a = interval", "int(x)", "a = interval"),
        ("a = 1\n    b = value + 2", "value + 1", "a = 1\n    b = value + 2"),  # not the cursor's own line
        ("a\n    return b", "\n    return c", "a\n    return b"),  # another line may well begin alike
        ("", "value", ""),
    ],
)
def test_line_that_a_newline_or_a_limit_ends_ends_where_it_reaches_the_rest_of_its_line(text: str, rest: str, kept: str) -> None:
    suffix = Suffix(rest + "\n")
    assert text[: suffix.end(text, by_itself=False)] == kept
    assert suffix.end(text, by_itself=True) == len(text)
    assert suffix.stable(text) <= len(kept)


def test_only_the_beginning_of_a_suffix_is_read() -> None:
    endless = Suffix("-" * 5_000_000 + "abc")
    assert endless.stop_texts == ()
    assert Suffix("a" * 5_000_000).stop_texts == ("a" * MOST_CHARS,)
    assert Suffix("a" * MOST_CHARS + "\n").stop_texts == ("a" * MOST_CHARS + "\n", "a" * MOST_CHARS + "\r")


def test_a_stream_goes_on_behind_a_line_that_shares_nothing_with_the_rest_of_the_cursors() -> None:
    text = "the itself is\nlong, and selfish\nself "
    assert Suffix("self.x)\n").stable(text) == len(text)


LINE = StopRule()


@given(
    text=st.lists(st.sampled_from(["a", "b", "ab", " ", "\n", "\n  "]), max_size=20).map("".join),
    stops=st.lists(st.sampled_from(["ab", "bab", "\n\n", "a", "aab"]), max_size=3).map(tuple),
    cuts=st.sets(st.integers(0, 60)),
    indent=st.sampled_from([None, 0, 2]),
)
def test_no_stop_takes_away_what_was_stable(text: str, stops: tuple[str, ...], cuts: set[int], indent: int | None) -> None:
    whole = Stops(StopRule(indent), stops).find(text)
    expected = text if whole is None else text[:whole]
    growing, stable, end = Stops(StopRule(indent), stops), "", None
    for length in [*sorted(cut for cut in cuts if cut < len(text)), len(text)]:
        end = growing.find(text[:length])
        if end is not None:
            break
        now = text[: growing.stable(text[:length])]
        assert now.startswith(stable)
        stable = now
    assert text[:end].rstrip() == expected.rstrip()  # a dedent that comes later takes the white space before a stop
    assert expected.startswith(stable)


@pytest.mark.parametrize(
    ("indent", "suffix", "text"),
    [(4, "b)\n", "x, b)  \nelse"), (2, "\n  abc", ")abc\n  abc  \nabc"), (None, "value)\n", "x, value + 1\n")],
)
def test_space_behind_the_suffix_settles_nothing_of_it(indent: int | None, suffix: str, text: str) -> None:
    stops, stable = Stops(StopRule(indent), suffix=suffix), 0
    for length in range(1, len(text) + 1):
        end = stops.find(text[:length])
        if end is not None:
            assert stable <= end
            return
        stable = max(stable, stops.stable(text[:length]))
    pytest.fail("it does not end")


def test_a_text_that_ends_at_the_suffix_was_not_cut() -> None:
    stops = Stops(StopRule(indent=0), suffix="b)\n")
    assert stops.last("x, b)", "length") == ("x, ", "stop")
    assert stops.last("x, c)", "length") == ("x, c)", "length")
    assert stops.last("x, c)", "eos") == ("x, c)", "eos")


def test_line_of_the_suffix_ends_a_line_too() -> None:
    assert Stops(LINE, suffix="b)\n").find("x, b)\n") == len("x, ")
    assert Stops(LINE, suffix="value)\n").find("x, value + 1)\n") == len("x, ")
    assert Stops(LINE, ("val",), "x, value)\n").find("y, val") == len("y, ")  # stop texts come first
    assert Stops(LINE, suffix="\n    b()\n").find("a\n    b()\n") == 1  # the newline comes first


@given(
    text=st.lists(st.sampled_from(["ab", "abc", "x", " ", "\n", "\n  ", ")"]), max_size=25).map("".join),
    suffix=st.lists(st.sampled_from(["ab", "abc", " ", "\n", "\n  ", ")"]), max_size=6).map("".join),
    indent=st.sampled_from([None, 0, 2, 4]),
)
def test_text_that_grows_never_takes_back_what_was_stable_before_the_suffix(text: str, suffix: str, indent: int | None) -> None:
    growing, stable = Stops(StopRule(indent), suffix=suffix), ""
    for length in range(1, len(text) + 1):
        end = growing.find(text[:length])
        if end is not None:
            assert text[:end].startswith(stable)
            assert end == Stops(StopRule(indent), suffix=suffix).find(text[:length])
            return
        assert all(growing.last(text[:length], reason)[0].startswith(stable) for reason in ("eos", "length"))
        stable = max(stable, text[: growing.stable(text[:length])], key=len)


def test_text_that_no_stop_can_begin_with_is_stable_at_once() -> None:
    stops = Stops(StopRule(indent=0), ("\n\n", "end"))
    assert [stops.stable(text) for text in ("a\n", "a\nb", "a en", "a enx")] == [2 - 1, 3, 2, 5]
