"""Remembers the tokens that decoding chose for the partial word at the cursor, so that no key decodes them again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from inference.engine.request import Request
from inference.text.prompts import TokenizedPrompt
from inference.text.token_ids import BYTES_PER_ID, TokenIds, packed
from inference.text.tokenization import LRUCache
from kv_store.interface import SessionKey
from protocol.messages import CompletionRequest

MAX_SESSIONS = 256
MAX_BYTES = 2**24
BYTES_PER_SESSION = 4096
MOST_PROMPTS = 4  # of a session: what is typed next settles a word, and deleting it brings the last prompt back
MOST_TYPED = 32  # of a prompt


@dataclass(slots=True)
class _PromptCompletions:
    """Completions of one prompt, keyed by the typed bytes that they had to reproduce; the newest last."""

    prompt: TokenIds
    by_typed: dict[bytes, TokenIds] = field(default_factory=dict)

    def best(self, typed: bytes) -> TokenIds:
        """The completion for the longest beginning of `typed`; empty without one."""
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
        return BYTES_PER_ID * tokens + sum(map(len, self.by_typed))


@dataclass(frozen=True, slots=True)
class TypedStart:
    """The start of a decoding: behind the `stable` prompt and the tokens that are known to spell what was typed.

    `prompt` has these tokens, and the typed bytes that are left. Its session's memory is dropped when the document is
    forgotten, even while the request is at work.
    """

    stable: TokenizedPrompt
    prompt: TokenizedPrompt
    _memory: list[_PromptCompletions] | None = None

    def remember(self, generated: TokenIds) -> None:
        """Remember what was generated behind the prompt."""
        if self._memory is None or not generated:
            return
        known = _of(self.stable, self._memory) or _PromptCompletions(self.stable.token_ids)
        known.add(self.stable.typed, self.prompt.token_ids[len(self.stable.token_ids) :] + generated)
        self._memory[:] = [*(other for other in self._memory if other is not known), known][-MOST_PROMPTS:]


class PartialWordCache:
    """Keeps the tokens that were chosen for a partial word, so that the next key need not decode them again.

    Of the tokens that a longer text allows next, the shorter one allows every one. So a token that was the most
    probable of those, and agrees with what has been typed since, is still the most probable. It becomes a token of the
    prompt, which is resident, and decoding goes on behind it.
    """

    def __init__(self, spell: Callable[[int], bytes | None]) -> None:
        """`spell` gives a token's bytes; None if it is no text."""
        self._spell = spell
        self._sessions: LRUCache[SessionKey, list[_PromptCompletions]] = LRUCache(MAX_SESSIONS, MAX_BYTES)

    def start(self, request: Request, stable: TokenizedPrompt) -> TypedStart:
        """The start of this request's decoding; `stable` is its prompt up to the partial word."""
        if not (stable.typed and _is_comparable(request.spec)):
            return TypedStart(stable, stable)
        memory = self._sessions.get(request.session)
        if memory is None:
            memory = []
        known = _of(stable, memory)
        soon = BYTES_PER_ID * len(stable.token_ids) if known is None else 0  # what `remember` adds
        size_bytes = BYTES_PER_SESSION + soon + sum(each.size_bytes for each in memory)
        self._sessions.put(request.session, memory, size_bytes)
        chosen = packed() if known is None else self._agreeing(known.best(stable.typed), stable.typed)
        spelled = sum(len(self._spell(token_id) or b"") for token_id in chosen)
        prompt = replace(
            stable,
            token_ids=stable.token_ids + chosen,
            increment_tokens=stable.increment_tokens + len(chosen),
            typed=stable.typed[spelled:],
        )
        return TypedStart(stable, prompt, memory)

    def sessions(self) -> Iterable[SessionKey]:
        """The sessions of which something is known."""
        return self._sessions

    def forget(self, document: str) -> None:
        """Drop what is known of the document, for every client."""
        self._sessions.remove_all(lambda session: session.document == document)

    def clear(self) -> None:
        """Drop what is known of every document."""
        self._sessions.remove_all(lambda _: True)

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


def _of(stable: TokenizedPrompt, memory: list[_PromptCompletions]) -> _PromptCompletions | None:
    return next((each for each in memory if each.prompt == stable.token_ids), None)


def _is_comparable(request: CompletionRequest) -> bool:
    """Whether its tokens are the most probable ones, and its first may be resident."""
    return request.reuse and request.sampling is None and not request.alternatives and request.best_of == 1
