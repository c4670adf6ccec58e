"""Token boundaries: how much of a tokenization no continuation changes, and which tokens may follow typed bytes."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from inference.text.token_ids import BYTE_OF_CHARACTER, SPACE_MARK

# One continuation per character class of a pre-tokenizer's pattern, and per look-ahead: white space before text or a
# newline, the letters of English contractions.
PROBES = (
    *("a", "A", "1", "中", "가", "\u0301", "_", "(", "'", "=", "😀", "\u200b", "\n", "\r", "\t", " ", "\xa0"),
    *(" a", " 1", " (", " \n", "  a", "\n\n", "\na", "\n a", "(\n"),
)
AFTER_APOSTROPHE = ("s", "S", "t", "T", "m", "M", "d", "D", "e", "E", "l", "L", "re", "RE", "ve", "VE", "ll", "LL")

_MOST_PAIRS = 1 << 16  # cached pairs of characters, bounded since text has any number of them

FEWEST_PIECES = 2
"""Pieces at the end that a continuation is tested with at first; four times as many while it may change all of them."""

_WORD = re.compile("[a-z]+")
_SAMPLE = "def internationalize(anOldName):\n    return HTTPServer(a, port=8080).name_of['key'] + 1.5e3\n"
_MOST_SHAPES = 1024


class StablePieces:
    """The pieces of a byte-level pre-tokenizer that no continuation changes; BPE merges only within a piece.

    A pre-tokenizer takes all lower-case letters of a word for the same. What has been found out about the end of one
    text therefore holds for every text of the same shape: at a key, nothing is tried out again.
    """

    def __init__(self, pieces_of: Callable[[str], Sequence[str]]) -> None:
        """`pieces_of` returns a text's pieces, one character per byte."""
        self._pieces_of = pieces_of
        self._has_shapes = [_WORD.sub("a", piece) for piece in pieces_of(_SAMPLE)] == pieces_of(_WORD.sub("a", _SAMPLE))
        self._stable = lru_cache(_MOST_SHAPES)(self._stable_pieces)

    def stable(self, text: str) -> int:
        """Number of leading bytes of `text` in pieces that no continuation changes.

        A continuation changes the last pieces and none before the first that it leaves as it is.
        """
        pieces, count = self._pieces_of(text), FEWEST_PIECES
        while True:
            near, near_text = pieces[-count:], _text_of(pieces[-count:])
            if self._pieces_of(near_text) != near:
                near, near_text = pieces, text
            # Behind an apostrophe the letters of a word matter, as in I'll.
            has_shape = self._has_shapes and "'" not in near_text
            stable = self._stable(_WORD.sub("a", near_text) if has_shape else near_text)
            if stable or len(near) == len(pieces):
                return sum(map(len, pieces[: len(pieces) - len(near) + stable]))
            count *= 4

    def _stable_pieces(self, text: str) -> int:
        """How many of the pieces of `text` no probe changes."""
        pieces = self._pieces_of(text)
        stable = len(pieces)
        for probe in (*PROBES, *(AFTER_APOSTROPHE if "'" in text[-2:] else ())):
            changed = self._pieces_of(text + probe)
            while changed[:stable] != pieces[:stable]:
                stable -= 1
            if not stable:
                break
        return stable


def _text_of(pieces: Iterable[str]) -> str:
    return bytes(map(BYTE_OF_CHARACTER.__getitem__, "".join(pieces))).decode()


class MergePairs:
    """The pairs of adjacent characters within tokens: a token boundary is final only between other pairs.

    For a BPE without an effective pre-tokenizer, such as SentencePiece's. A merge across a position needs a token with
    the characters on both sides of it; without one, the text before it is tokenized independently.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        joined = "\0".join(token for token in tokens if len(token) > 1)
        self._is_within_a_token = lru_cache(_MOST_PAIRS)(lambda pair: pair in joined)

    def stable(self, text: str, token_lengths: Sequence[int]) -> int:
        """Number of leading bytes of `text` in tokens that no continuation changes; `token_lengths` are in bytes.

        `text` is the input of the merges, with SPACE_MARK for a space, which counts as one byte.
        """
        ends = set(accumulate(token_lengths))
        stable = position = 0
        for before, after in pairwise(text):
            position += 1 if before == SPACE_MARK else len(before.encode())
            if position in ends and not self._is_within_a_token(before + after):
                stable = position
        return stable


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
