"""Remembers the tokens that decoding chose for the partial word at the cursor, so that no key decodes them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from inference.text.lru import LRUCache
from inference.text.prompts import TokenizedPrompt
from inference.text.token_ids import TokenIds, packed
from kv_store.interface import document_of
from protocol.messages import CompletionRequest

MAX_SESSIONS = 256
MAX_BYTES = 2**24
BYTES_PER_TOKEN = 4
BYTES_PER_PROMPT = 4096
MOST_PROMPTS = 4  # of a session: what is typed next settles a word, and deleting it brings the last prompt back
MOST_TYPED = 32  # of a prompt


@dataclass(slots=True)
class _Choices:
    """What was generated behind one prompt, by the typed bytes that it had to spell first; the newest last."""

    prompt: TokenIds
    by_typed: dict[bytes, TokenIds] = field(default_factory=dict)

    def best(self, typed: bytes) -> TokenIds:
        """What was generated for the longest beginning of `typed`."""
        earlier = max(filter(typed.startswith, self.by_typed), key=len, default=None)
        return packed() if earlier is None else self.by_typed[earlier]

    def add(self, typed: bytes, generated: TokenIds) -> None:
        """Keep the longer of two for the same typed bytes: the other was cancelled."""
        self.by_typed[typed] = max(self.by_typed.pop(typed, packed()), generated, key=len)
        if len(self.by_typed) > MOST_TYPED:
            del self.by_typed[next(iter(self.by_typed))]

    @property
    def size_bytes(self) -> int:
        tokens = len(self.prompt) + sum(map(len, self.by_typed.values()))
        return BYTES_PER_PROMPT + BYTES_PER_TOKEN * tokens


class TypedChoices:
    """The tokens that each session's last greedy completions chose behind the prompt's last settled token.

    Of the tokens that a longer text allows next, the shorter one allows every one. So a token that was the most
    probable of those, and agrees with what has been typed since, is still the most probable. It becomes a token of the
    prompt, which is resident, and decoding goes on behind it.
    """

    def __init__(self, spell: Callable[[int], bytes | None]) -> None:
        """`spell` gives a token's bytes; None if it is no text."""
        self._spell = spell
        self._sessions: LRUCache[str, list[_Choices]] = LRUCache(MAX_SESSIONS, MAX_BYTES)

    def extend(self, request: CompletionRequest, prompt: TokenizedPrompt) -> TokenizedPrompt:
        """The request's prompt, with the tokens that are known to spell the beginning of its typed bytes."""
        known = self._known(request, prompt)
        chosen = packed() if known is None else self._agreeing(known.best(prompt.typed), prompt.typed)
        if not chosen:
            return prompt
        spelled = sum(len(self._spell(token_id) or b"") for token_id in chosen)
        return replace(
            prompt,
            token_ids=prompt.token_ids + chosen,
            increment_tokens=prompt.increment_tokens + len(chosen),
            typed=prompt.typed[spelled:],
        )

    def remember(
        self, request: CompletionRequest, prompt: TokenizedPrompt, extended: TokenizedPrompt, generated: TokenIds
    ) -> None:
        """Remember what was generated behind the `extended` prompt, which `extend` made of `prompt`."""
        if not (generated and prompt.typed and _is_comparable(request)):
            return
        known = self._known(request, prompt) or _Choices(prompt.token_ids)
        known.add(prompt.typed, extended.token_ids[len(prompt.token_ids) :] + generated)
        others = [other for other in self._sessions.get(request.session) or () if other is not known]
        kept = [*others, known][-MOST_PROMPTS:]
        self._sessions.put(request.session, kept, sum(each.size_bytes for each in kept))

    def forget(self, session: str) -> None:
        """Drop what is known of the session's document, for every client."""
        document = document_of(session)
        for known in [known for known in self._sessions if document_of(known) == document]:
            self._sessions.remove(known)

    def _known(self, request: CompletionRequest, prompt: TokenizedPrompt) -> _Choices | None:
        if not (prompt.typed and _is_comparable(request)):
            return None
        choices = self._sessions.get(request.session) or ()
        return next((each for each in choices if each.prompt == prompt.token_ids), None)

    def _agreeing(self, token_ids: TokenIds, typed: bytes) -> TokenIds:
        """The first tokens that spell a beginning of `typed`, up to the last end of a character."""
        spelled, count = 0, 0
        for number, token_id in enumerate(token_ids, start=1):
            token = self._spell(token_id)
            if not token or not typed.startswith(token, spelled):
                break
            spelled += len(token)
            if spelled == len(typed) or typed[spelled] & 0xC0 != 0x80:
                count = number
        return token_ids[:count]


def _is_comparable(request: CompletionRequest) -> bool:
    """Whether its tokens are the most probable ones, and its first may be resident."""
    return request.reuse and request.sampling is None and not request.alternatives
