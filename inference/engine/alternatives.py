"""Other beginnings of a suggestion: decoding constrained to a first token that no suggestion before began with.

The first token of a suggestion is the first one that spells more than typed bytes.
"""

from __future__ import annotations

import numpy as np

from inference.text.healing import Healer, TypedBytes
from inference.text.healing_vocabulary import AllowedIds
from inference.text.tokenization import TextTokenizer


class Alternatives:
    """Makes the constraints for alternatives; shared by all requests."""

    def __init__(self, tokenizer: TextTokenizer, healer: Healer | None) -> None:
        self._tokenizer = tokenizer
        self._healer = healer
        self._text_ids: AllowedIds | None = None  # built on first use: slow for large vocabularies

    def other_than(self, taken: tuple[int, ...], typed: bytes) -> AlternativeStart:
        """The constraint for an alternative whose first token must not be one of `taken`."""
        if self._text_ids is None:
            self._text_ids = np.fromiter(self._tokenizer.text_tokens(), dtype=np.int64)
        return AlternativeStart(typed, self._healer, self._text_ids, taken)


class AlternativeStart(TypedBytes):
    """Typed bytes, and behind them a first token that is none of the `taken` ones; after it everything is as ever."""

    def __init__(self, rest: bytes, healer: Healer | None, text_ids: AllowedIds, taken: tuple[int, ...]) -> None:
        super().__init__(rest, healer)
        self._text_ids = text_ids
        self._taken = taken
        self.first: int | None = None  # the first token, once it is taken

    @property
    def possible(self) -> bool:
        """Whether any first token is left."""
        allowed = self.allowed()
        return allowed is None or len(allowed) > 0

    def allowed(self) -> AllowedIds | None:
        allowed = super().allowed()
        if not self._taken:
            return allowed
        if allowed is None:
            return self._text_ids[~np.isin(self._text_ids, self._taken)]
        # A token within the typed bytes begins no text, so it stays although another text begins with it.
        return allowed[~np.isin(allowed, [token_id for token_id in self._taken if not self.is_within(token_id)])]

    def take(self, token_id: int) -> bool:
        within = super().take(token_id)
        if not within and self.first is None:
            self.first, self._taken = token_id, ()
        return within
