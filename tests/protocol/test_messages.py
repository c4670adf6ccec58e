"""The one rule that says whether a request was a cache hit, a partial one or a miss."""

import pytest

from protocol.messages import Usage, cache_outcome, estimate_tokens


@pytest.mark.parametrize(
    ("recomputed", "prompt", "inserted", "block", "expected"),
    [
        (0, 900, 0, 1, "hit"),  # the rest of the last suggestion
        (1, 900, 1, 1, "hit"),  # a character
        (4, 900, 1, 1, "hit"),
        (5, 900, 1, 1, "partial"),
        (3, 900, 0, 1, "hit"),  # a backspace
        (4, 900, 0, 1, "partial"),
        (203, 900, 200, 1, "hit"),  # a paste costs what it brings
        (899, 900, 1, 1, "partial"),
        (900, 900, 1, 1, "miss"),
        (3, 3, 0, 1, "hit"),  # an empty document: there is nothing to reuse
        (19, 900, 1, 16, "hit"),  # up to 15 tokens of a block that was not whole
        (20, 900, 1, 16, "partial"),
    ],
)
def test_heat(recomputed: int, prompt: int, inserted: int, block: int, expected: str) -> None:
    usage = Usage(prompt, recomputed, 0, 0, 0.0, 0.0, 0.0, block_tokens=block)
    assert cache_outcome(usage, inserted) == expected


@pytest.mark.parametrize(
    ("text", "chars_per_token", "expected"),
    [("", 0.0, 0), ("x", 0.0, 1), ("return x\n", 0.0, 3), ("return x\n", 4.5, 2), ("x" * 32, 3.2, 10)],
)
def test_estimate_tokens(text: str, chars_per_token: float, expected: int) -> None:
    assert estimate_tokens(len(text), chars_per_token) == expected
