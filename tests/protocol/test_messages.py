"""The one rule that says whether a request was hot, warm or cold."""

import pytest

from protocol.messages import Usage, estimate_tokens, heat


@pytest.mark.parametrize(
    ("recomputed", "prompt", "inserted", "block", "expected"),
    [
        (0, 900, 0, 1, "hot"),  # the rest of the last suggestion
        (1, 900, 1, 1, "hot"),  # a character
        (4, 900, 1, 1, "hot"),
        (5, 900, 1, 1, "warm"),
        (3, 900, 0, 1, "hot"),  # a backspace
        (4, 900, 0, 1, "warm"),
        (203, 900, 200, 1, "hot"),  # a paste costs what it brings
        (899, 900, 1, 1, "warm"),
        (900, 900, 1, 1, "cold"),
        (3, 3, 0, 1, "hot"),  # an empty document: there is nothing to reuse
        (19, 900, 1, 16, "hot"),  # up to 15 tokens of a block that was not whole
        (20, 900, 1, 16, "warm"),
    ],
)
def test_heat(recomputed: int, prompt: int, inserted: int, block: int, expected: str) -> None:
    usage = Usage(prompt, recomputed, 0, 0, 0.0, 0.0, 0.0, block_tokens=block)
    assert heat(usage, inserted) == expected


@pytest.mark.parametrize(
    ("text", "chars_per_token", "expected"),
    [("", 0.0, 0), ("x", 0.0, 1), ("return x\n", 0.0, 3), ("return x\n", 4.5, 2), ("x" * 32, 3.2, 10)],
)
def test_estimate_tokens(text: str, chars_per_token: float, expected: int) -> None:
    assert estimate_tokens(len(text), chars_per_token) == expected
