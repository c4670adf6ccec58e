from __future__ import annotations

import pytest

from inference.text.rejoining import Suffix, first_lines
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
        ("end", "end"),
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
    assert text[: stops.last(text, by_itself=True) if end is None else end] == kept


@pytest.mark.parametrize(
    ("text", "rest", "kept"),
    [
        ("e in l if e >= 0]\n\n", "if e > 0]", "e in l "),  # the line goes on in another way
        ("value = value + other", "value + 1", "value = "),  # the longest beginning of the rest
        ("urn '' + urn x", "urn 'x'", ""),
        ("a b c", "b d", "a b c"),  # too short to tell
        ("a\n    return b", "\n    return c", "a\n    return b"),  # another line may well begin alike
        ("", "value", ""),
    ],
)
def test_text_that_a_limit_ends_ends_where_the_rest_of_the_line_begins(text: str, rest: str, kept: str) -> None:
    suffix = Suffix(rest + "\n")
    assert text[: suffix.end(text, by_itself=False)] == kept
    assert suffix.end(text, by_itself=True) == len(text)
