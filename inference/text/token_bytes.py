"""The bytes that tokens stand for, by the kind of BPE that they belong to, and text put together from them."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable


def _byte_level_alphabet() -> dict[str, int]:
    """The character that stands for each byte: itself where printable, else one from U+0100 on (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + rank): byte for rank, byte in enumerate(others)})
    return alphabet


BYTE_OF_CHARACTER = _byte_level_alphabet()


SPACE_MARK = "▁"
_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")


def bytes_of_token(token: str) -> bytes | None:
    """The bytes of a byte-level BPE token; None where it has characters that stand for no byte."""
    try:
        return bytes(map(BYTE_OF_CHARACTER.__getitem__, token))
    except KeyError:
        return None


def bytes_of_piece(token: str) -> bytes:
    """The bytes of a token of a BPE with byte fallback, as SentencePiece makes them: `▁def`, `<0x0A>`."""
    fallback = _FALLBACK.fullmatch(token)
    return bytes.fromhex(fallback.group(1)) if fallback else token.replace(SPACE_MARK, " ").encode()


class TextStream:
    """Text from tokens as they come: a character appears once its last byte has come, and never as U+FFFD."""

    def __init__(self, token_bytes: Callable[[int], bytes], skip: int = 0) -> None:
        """The first `skip` bytes that come are left out; they end between two characters."""
        self._token_bytes = token_bytes
        self._skip = skip
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.text = ""

    def push(self, token_id: int) -> bool:
        """Add one token to `text`; False where its bytes cannot go on from those before, and text ends for good."""
        token_bytes = self._token_bytes(token_id)
        kept = token_bytes[self._skip :]
        self._skip -= len(token_bytes) - len(kept)
        try:
            self.text += self._decoder.decode(kept)
        except UnicodeDecodeError as error:
            self.text += error.object[: error.start].decode("utf-8")
            return False
        return True
