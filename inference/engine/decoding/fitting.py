"""How well a text fits before the suffix: what of the suffix a model is asked about, behind which of the tokens."""

from __future__ import annotations

from collections.abc import Callable

from inference.text.token_ids import TokenIds

COMPARED = 8
"""Tokens of the suffix: they tell apart nearly as much as more of them."""

COMPARED_CHARS = 64


def text_and_suffix(
    token_ids: TokenIds, text: bytes, suffix: str, bytes_of: Callable[[int], bytes | None]
) -> tuple[int, str]:
    """The number of leading tokens that lie in `text`, and what follows them: the rest of it and of the suffix.

    A stop may have cut the text within a token.
    """
    kept, size = 0, 0
    for token_id in token_ids:
        longer = size + len(bytes_of(token_id) or b"")
        if longer > len(text):
            break
        kept, size = kept + 1, longer
    return kept, text[size:].decode("utf-8", "replace") + suffix[:COMPARED_CHARS]
