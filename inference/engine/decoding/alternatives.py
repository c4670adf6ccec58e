"""Constrains the decoding of alternatives: each begins with a first token that no earlier completion began with.

The first token of a completion is the first one that spells more than typed bytes.
"""

from __future__ import annotations

import numpy as np

from inference.text.healing import Healer, TypedBytes
from inference.text.healing_vocabulary import AllowedIds
from inference.text.tokenization import TextTokenizer


class AlternativeStart(TypedBytes):
    """Constrains tokens to the typed bytes, then to a first token outside of `taken`; later tokens are free."""

    def __init__(self, rest: bytes, healer: Healer | None, tokenizer: TextTokenizer, taken: tuple[int, ...]) -> None:
        super().__init__(rest, healer)
        self._tokenizer = tokenizer
        self._taken = taken
        self.first: int | None = None  # the first token, once it is chosen

    @property
    def possible(self) -> bool:
        """Whether a first token is left to choose."""
        allowed = self.allowed()
        return allowed is None or len(allowed) > 0

    def allowed(self) -> AllowedIds | None:
        allowed = super().allowed()
        if not self._taken:
            return allowed
        if allowed is None:
            text_ids = self._tokenizer.text_ids
            return text_ids[~np.isin(text_ids, self._taken)]
        # A token within the typed bytes is no first token, so it stays allowed even if another text begins with it.
        taken = [token_id for token_id in self._taken if not self._is_within_typed(token_id)]
        return allowed[~np.isin(allowed, taken)]

    def take(self, token_id: int) -> bool:
        within = super().take(token_id)
        if not within and self.first is None:
            self.first, self._taken = token_id, ()
        return within

    def _is_within_typed(self, token_id: int) -> bool:
        return self._tokenizer.is_text(token_id) and self.is_within(token_id)  # an empty text begins with the end
