from __future__ import annotations

import pytest

from inference.text.rejoining import MOST_CHARS, Suffix, first_lines
from inference.text.stops import Stops
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
def test_line_that_a_newline_or_a_limit_ends_ends_where_it_reaches_the_rest_of_its_line(
    text: str, rest: str, kept: str
) -> None:
    suffix = Suffix(rest + "\n")
    assert text[: suffix.end(text, by_itself=False)] == kept
    assert suffix.end(text, by_itself=True) == len(text)
    assert suffix.settled(text) <= len(kept)


def test_only_the_beginning_of_a_suffix_is_read() -> None:
    endless = Suffix("-" * 5_000_000 + "abc")
    assert endless.stop_texts == ()
    assert Suffix("a" * 5_000_000).stop_texts == ("a" * MOST_CHARS,)
    assert Suffix("a" * MOST_CHARS + "\n").stop_texts == ("a" * MOST_CHARS + "\n", "a" * MOST_CHARS + "\r")


def test_a_stream_goes_on_behind_a_line_that_shares_nothing_with_the_rest_of_the_cursors() -> None:
    text = "the itself is\nlong, and selfish\nself "
    assert Suffix("self.x)\n").settled(text) == len(text)
