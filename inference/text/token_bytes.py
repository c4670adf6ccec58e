"""Converts tokens to bytes, by their kind of BPE, and bytes to text."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable


def _byte_level_alphabet() -> dict[str, int]:
    """The character for each byte: the byte itself if printable, else one from U+0100 on (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + rank): byte for rank, byte in enumerate(others)})
    return alphabet


BYTE_OF_CHARACTER = _byte_level_alphabet()


SPACE_MARK = "▁"
_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")


def bytes_of_token(token: str) -> bytes | None:
    """The bytes of a byte-level BPE token; None if it has characters that represent no byte."""
    try:
        return bytes(map(BYTE_OF_CHARACTER.__getitem__, token))
    except KeyError:
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
