"""Finds the allowed next tokens for typed bytes, as ranges of the vocabulary sorted by bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

AllowedIds = NDArray[np.int64]


class SortedVocabulary:
    """The text tokens in the order of their bytes, so that tokens with a common prefix are adjacent."""

    def __init__(self, bytes_of_id: Mapping[int, bytes]) -> None:
        ordered = sorted((spelled, id_) for id_, spelled in bytes_of_id.items() if spelled)
        self._bytes_of_id = bytes_of_id
        self._spelled = [spelled for spelled, _ in ordered]
        self._ids: AllowedIds = np.array([id_ for _, id_ in ordered], dtype=np.int64)
        self._longest = max(map(len, self._spelled), default=0)

    def bytes_of(self, token_id: int) -> bytes:
        return self._bytes_of_id[token_id]

    def allowed(self, typed: bytes) -> AllowedIds:
        """The tokens that begin with `typed`, which is not empty, or that `typed` begins with, by their ids.

        So of equally probable tokens the same one comes first, whatever else is allowed.
        """
        ranges = [self._ids[self._find(typed) : self._find(_after_all_with(typed))]]
        for length in range(min(len(typed) - 1, self._longest), 0, -1):
            start = self._find(typed[:length])
            stop = start
            while stop < len(self._spelled) and self._spelled[stop] == typed[:length]:
                stop += 1
            if stop > start:
                ranges.append(self._ids[start:stop])
        return np.sort(np.concatenate(ranges))

    def _find(self, spelled: bytes | None) -> int:
        return len(self._spelled) if spelled is None else bisect_left(self._spelled, spelled)


def _after_all_with(prefix: bytes) -> bytes | None:
    """The least bytes greater than all that begin with `prefix`; None if there are none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
