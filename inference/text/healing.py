"""Token healing: splits an increment into stable tokens and typed bytes that decoding must spell first."""

from __future__ import annotations

from dataclasses import dataclass

from inference.text.fim import FIMFormat
from inference.text.token_boundaries import AllowedIds, SortedVocabulary
from inference.text.token_ids import TokenIds
from inference.text.tokenization import TextTokenizer
from protocol.errors import BadModel
from protocol.settings import Healing

MOST_TYPED_BYTES = 256
"""A longer end of an increment without a stable token is no word that is being typed, and is not healed."""


@dataclass(frozen=True, slots=True)
class HealedIncrement:
    """The tokens of the increment that no further typing changes, and the bytes of the rest."""

    token_ids: TokenIds
    typed: bytes


class Healer:
    """Heals increments for models that cannot continue partial words."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        """BadModel if the vocabulary cannot spell every text from every position."""
        spelled = tokenizer.text_tokens()
        alone = {token_bytes[0] for token_bytes in spelled.values() if len(token_bytes) == 1}
        missing = set(b"".join(spelled.values())) - alone
        if missing:
            raise BadModel(f"token healing needs a token for the single byte {min(missing):#04x}: set healing to off")
        self._tokenizer = tokenizer
        self.vocabulary = SortedVocabulary(spelled)

    def heal(self, increment: str) -> HealedIncrement:
        """Back up to the last token boundary of the increment that no continuation can change."""
        token_ids, stable = self._tokenizer.encode_stable(increment)
        typed = b"".join(map(self.vocabulary.bytes_of, token_ids[stable:]))
        if len(typed) > MOST_TYPED_BYTES:
            return HealedIncrement(token_ids, b"")
        return HealedIncrement(token_ids[:stable], typed)


class TypedBytes:
    """The bytes that the next tokens must still spell; none without a healer."""

    def __init__(self, rest: bytes, healer: Healer | None) -> None:
        self.rest = rest
        self._healer = healer

    def allowed(self) -> AllowedIds | None:
        """The allowed next tokens; None for all."""
        return self._healer.vocabulary.allowed(self.rest) if self.rest and self._healer else None

    def take(self, token_id: int) -> bool:
        """Consume the next token, one of those allowed; True if it spells typed bytes only."""
        if not self.rest or self._healer is None:
            return False
        within = self.is_within(token_id)
        self.rest = self.rest[len(self._healer.vocabulary.bytes_of(token_id)) :]
        return within

    def is_within(self, token_id: int) -> bool:
        """Whether this token, one of those allowed, would spell nothing but typed bytes."""
        return self._healer is not None and len(self._healer.vocabulary.bytes_of(token_id)) <= len(self.rest)


def wants_healing(mode: Healing, fim: FIMFormat) -> bool:
    """Whether to heal; "auto" heals unless the model continues partial words equally well."""
    return not fim.fragments_suffice if mode == "auto" else mode == "on"
