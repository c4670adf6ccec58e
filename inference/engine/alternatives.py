"""Other beginnings of a suggestion: decoding constrained to a first token that no suggestion before began with."""

from __future__ import annotations

import numpy as np

from inference.text.healing import Healer, TypedBytes
from inference.text.healing_vocabulary import AllowedIds
from inference.text.tokenization import TextTokenizer


class Branches:
    """Makes the constraints for alternatives; shared by all requests."""

    def __init__(self, tokenizer: TextTokenizer, healer: Healer | None) -> None:
        self._tokenizer = tokenizer
        self._healer = healer
        self._text_ids: AllowedIds | None = None  # built on first use: slow for large vocabularies

    def other_than(self, taken: tuple[int, ...], typed: bytes) -> OtherBeginning:
        """The constraint for an alternative whose first token must not be one of `taken`."""
        if self._text_ids is None:
            self._text_ids = np.fromiter(self._tokenizer.text_tokens(), dtype=np.int64)
        return OtherBeginning(typed, self._healer, self._text_ids, taken)


class OtherBeginning(TypedBytes):
    """Typed bytes whose next token is none of the `taken` ones; after it everything is as ever."""

    def __init__(self, rest: bytes, healer: Healer | None, text_ids: AllowedIds, taken: tuple[int, ...]) -> None:
        super().__init__(rest, healer)
        self._text_ids = text_ids
        self._taken = taken

    @property
    def possible(self) -> bool:
        """Whether any first token is left."""
        allowed = self.allowed()
        return allowed is None or len(allowed) > 0

    def allowed(self) -> AllowedIds | None:
        allowed = super().allowed()
        if not self._taken:
            return allowed
        among = self._text_ids if allowed is None else allowed
        return among[~np.isin(among, self._taken)]

    def take(self, token_id: int) -> bool:
        self._taken = ()
        return super().take(token_id)
