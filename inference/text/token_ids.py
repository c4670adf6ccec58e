"""Packed arrays of token ids, which every keystroke joins, compares and searches by the thousand."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TypeAlias

from kv_store.page_tree import common_prefix_length

__all__ = ["BYTES_PER_ID", "TokenIds", "common_prefix_length", "packed", "place_of_last"]

TokenIds: TypeAlias = "array[int]"
"""32 bits per id. Returned arrays are often cached: only the function that created one may change it."""

BYTES_PER_ID = 4


def packed(ids: Iterable[int] = ()) -> TokenIds:
    """A new array of these ids."""
    return array("i", ids)


def place_of_last(run: TokenIds, ids: TokenIds) -> int:
    """Index of the last occurrence of `run` in `ids` that ends before their end; -1 if there is none."""
    wanted, haystack = run.tobytes(), ids.tobytes()
    place = haystack.rfind(wanted, 0, -1)
    while place >= 0 and place % BYTES_PER_ID:  # not aligned to a token
        place = haystack.rfind(wanted, 0, place + len(wanted) - 1)
    return place // BYTES_PER_ID
