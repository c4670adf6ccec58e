from __future__ import annotations

from itertools import accumulate

from midfill_lab.training.examples.later_names import lines_with_later_names

TEXT = """\
import os


def count(folder):
    # total is explained here
    total = 0
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        total += os.path.isfile(path)
    return total
"""


def found(text: str) -> list[str]:
    lines = text.splitlines(keepends=True)
    starts = list(accumulate(map(len, lines), initial=0))
    return [lines[number].strip() for number in lines_with_later_names(text, starts)]


def test_lines_that_introduce_what_is_used_below() -> None:
    assert found(TEXT) == [
        "import os",
        "def count(folder):",
        "total = 0",
        "for name in os.listdir(folder):",
        "path = os.path.join(folder, name)",
    ]


def test_keywords_comments_and_a_line_s_own_repetition_do_not_count() -> None:
    assert found("# word\nword\nif x:\n    pass\nif y:\n    yy = yy + 1\n") == []


def test_no_text_has_none() -> None:
    assert found("") == []
