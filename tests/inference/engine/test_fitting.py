"""Where a text ends among its tokens, and what follows it."""

from __future__ import annotations

import pytest

from inference.engine.search import COMPARED_CHARS, text_and_suffix
from inference.text.token_ids import packed

SPELLED = dict(enumerate([b"re", b"turn", b") +", "é".encode()[:1], "é".encode()[1:]]))


@pytest.mark.parametrize(
    ("token_ids", "text", "expected"),
    [
        ([0, 1], "return", (2, "\n")),
        ([0, 1], "re", (1, "\n")),
        ([0, 2], "re)", (1, ")\n")),
        ([0, 2], "", (0, "\n")),
        ([3, 4, 0], "é", (2, "\n")),
        ([], "", (0, "\n")),
    ],
)
def test_a_text_keeps_the_tokens_that_lie_within_it(token_ids: list[int], text: str, expected: tuple[int, str]) -> None:
    assert text_and_suffix(packed(token_ids), text.encode(), "\n", SPELLED.get) == expected


def test_only_the_beginning_of_the_suffix_counts() -> None:
    assert text_and_suffix(packed([0]), b"re", "x" * 1000, SPELLED.get) == (1, "x" * COMPARED_CHARS)
