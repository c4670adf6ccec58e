"""Token ids and their bytes: packed arrays of ids, and the conversion between tokens, bytes and text."""

from __future__ import annotations

import codecs
import re
from array import array
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from kv_store.page_tree import common_prefix_length


def _byte_level_alphabet() -> dict[str, int]:
    """The character for each byte: the byte itself if printable, else one from U+0100 on (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + rank): byte for rank, byte in enumerate(others)})
    return alphabet


BYTE_OF_CHARACTER = _byte_level_alphabet()
_CHARACTERS = codecs.charmap_build("".join(sorted(BYTE_OF_CHARACTER, key=BYTE_OF_CHARACTER.__getitem__)))


SPACE_MARK = "▁"
_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")


def bytes_of_token(token: str) -> bytes | None:
    """The bytes of a byte-level BPE token; None if it has characters that represent no byte."""
    try:
        return codecs.charmap_encode(token, "strict", _CHARACTERS)[0]
    except UnicodeEncodeError:
        return None


def bytes_of_piece(token: str) -> bytes:
    """The bytes of a token of a BPE with byte fallback, as in SentencePiece: `▁def`, `<0x0A>`."""
    fallback = _FALLBACK.fullmatch(token)
    return bytes.fromhex(fallback.group(1)) if fallback else token.replace(SPACE_MARK, " ").encode()


class TextStream:
    """Decodes tokens as they arrive: a character appears with its last byte, and never as U+FFFD."""

    def __init__(self, token_bytes: Callable[[int], bytes], skip: int = 0) -> None:
        """Omits the first `skip` bytes, which must end between two characters."""
        self._token_bytes = token_bytes
        self._skip = skip
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.text = ""

    def push(self, token_id: int) -> bool:
        """Append one token to `text`; False if its bytes cannot continue the previous ones, which ends the text."""
        token_bytes = self._token_bytes(token_id)
        kept = token_bytes[self._skip :]
        self._skip -= len(token_bytes) - len(kept)
        try:
            self.text += self._decoder.decode(kept)
        except UnicodeDecodeError as error:
            self.text += error.object[: error.start].decode("utf-8")
            return False
        return True


__all__ = ["BYTES_PER_ID", "TokenIds", "common_prefix_length", "packed", "place_of", "place_of_last"]

TokenIds: TypeAlias = "array[int]"
"""32 bits per id. Returned arrays are often cached: only the function that created one may change it."""

BYTES_PER_ID = 4


packed: Callable[..., TokenIds] = partial(array, "i")
"""A new array of the ids given, or without any."""


def place_of(run: TokenIds, ids: TokenIds, start: int = 0) -> int:
    """Index of the first occurrence of `run` in `ids` from `start` on; -1 if there is none."""
    wanted, haystack = run.tobytes(), ids.tobytes()
    place = haystack.find(wanted, start * BYTES_PER_ID)
    while place >= 0 and place % BYTES_PER_ID:  # not aligned to a token
        place = haystack.find(wanted, place + 1)
    return place // BYTES_PER_ID


def place_of_last(run: TokenIds, ids: TokenIds) -> int:
    """Index of the last occurrence of `run` in `ids` that ends before their end; -1 if there is none."""
    wanted, haystack = run.tobytes(), ids.tobytes()
    place = haystack.rfind(wanted, 0, -1)
    while place >= 0 and place % BYTES_PER_ID:  # not aligned to a token
        place = haystack.rfind(wanted, 0, place + len(wanted) - 1)
    return place // BYTES_PER_ID
