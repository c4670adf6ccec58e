"""The bytes that the tokens of a byte-level BPE stand for, and text put together from them."""

from __future__ import annotations

import codecs
from collections.abc import Callable


def _byte_level_alphabet() -> dict[str, int]:
    """The character that stands for each byte: itself where printable, else one from U+0100 on (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    alphabet.update({chr(0x100 + rank): byte for rank, byte in enumerate(others)})
    return alphabet


BYTE_OF_CHARACTER = _byte_level_alphabet()


def bytes_of_token(token: str) -> bytes | None:
    """The bytes of a byte-level BPE token; None where it has characters that stand for no byte."""
    if not all(character in BYTE_OF_CHARACTER for character in token):
        return None
    return bytes(BYTE_OF_CHARACTER[character] for character in token)


class TextStream:
    """Text from tokens as they come: a character appears once its last byte has come, and never as U+FFFD."""

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.text = ""

    def push(self, token_id: int) -> bool:
        """Add one token to `text`; False where its bytes cannot go on from those before, and text ends for good."""
        try:
            self.text += self._decoder.decode(self._token_bytes(token_id))
        except UnicodeDecodeError as error:
            self.text += error.object[: error.start].decode("utf-8")
            return False
        return True
