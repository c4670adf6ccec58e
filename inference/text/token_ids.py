"""Token ids, packed: a prompt's are joined, compared and searched at every key, and there are thousands of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TypeAlias

TokenIds: TypeAlias = "array[int]"
"""32 bits for each. What one function returns is often remembered by another: only its maker may change it."""

BYTES_PER_ID = 4
COMPARED_AT_ONCE = 256


def packed(ids: Iterable[int] = ()) -> TokenIds:
    """These ids, in a new array."""
    return array("i", ids)


def common_prefix_length(first: TokenIds, second: TokenIds) -> int:
    """How many leading tokens two sequences share."""
    shorter = min(len(first), len(second))
    for start in range(0, shorter, COMPARED_AT_ONCE):
        stop = min(start + COMPARED_AT_ONCE, shorter)
        if first[start:stop] != second[start:stop]:
            return next(position for position in range(start, stop) if first[position] != second[position])
    return shorter


def place_of_last(run: TokenIds, ids: TokenIds) -> int:
    """Where `run` stands in `ids` for the last time, before their end; -1 where it does not."""
    wanted, haystack = run.tobytes(), ids.tobytes()
    place = haystack.rfind(wanted, 0, -1)
    while place >= 0 and place % BYTES_PER_ID:  # between two tokens
        place = haystack.rfind(wanted, 0, place + len(wanted) - 1)
    return place // BYTES_PER_ID
