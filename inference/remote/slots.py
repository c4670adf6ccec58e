"""Places sessions in the slots of a server, and notices when a server has dropped what it had resident."""

from __future__ import annotations

from dataclasses import dataclass, field

from inference.text.token_ids import TokenIds, common_prefix_length, packed
from kv_store.interface import NO_SESSION, SessionKey

MAX_SESSIONS = 1024
"""Sessions that are remembered for a server that places prompts by itself."""
SHARED_BY_CHANCE = 16
"""Anonymous prompts that share no more tokens than this, such as markers, are unrelated."""
TOLERANCE_TOKENS = 64
"""A server with slots that has this many tokens less than expected has lost nothing of use."""
BLOCK_TOLERANCE_TOKENS = 256
"""As TOLERANCE_TOKENS, for a server that keeps whole blocks, of 16 to 128 tokens."""
STATE_TOLERANCE_TOKENS = 1024
"""As TOLERANCE_TOKENS, where copies of recurrent states stand up to a batch of 512 tokens before a prompt's end."""


@dataclass(slots=True, eq=False)
class RemoteSlot:
    """A slot of the server, or one session's prompts in a server without slots."""

    number: int | None
    session: SessionKey = NO_SESSION
    token_ids: TokenIds = field(default_factory=packed)  # of the last prompt, those that the server has computed
    dropped_on_release: bool = False  # its prompt must be dropped when the request at work ends


class RemoteSlots:
    """Gives each session the slot that has its last prompt. For one thread only."""

    def __init__(self, server_slots: int | None, *, keeps_states: bool = False) -> None:
        """`server_slots` is None for a server that places prompts by itself; `keeps_states` if copies of them limit reuse."""
        self._server_slots = server_slots
        self._tolerance = BLOCK_TOLERANCE_TOKENS if server_slots is None else TOLERANCE_TOKENS
        if keeps_states:
            self._tolerance = STATE_TOLERANCE_TOKENS
        self._idle = [RemoteSlot(number) for number in range(server_slots or 0)]  # the least recently used first
        self._in_use: list[RemoteSlot] = []
        self.requests_with_losses = 0
        self.lost_tokens = 0

    @property
    def resident_tokens(self) -> int:
        """Tokens that the server has resident, if it has dropped none since."""
        return sum(len(slot.token_ids) for slot in (*self._idle, *self._in_use))

    def missing(self, session: SessionKey, token_ids: TokenIds) -> int:
        """Number of these tokens that the session's slot does not hold, if the server has dropped nothing since."""
        lengths = (common_prefix_length(slot.token_ids, token_ids) for slot in self._idle if slot.session == session)
        return len(token_ids) - max(lengths, default=0)

    def acquire(self, session: SessionKey, token_ids: TokenIds) -> RemoteSlot:
        """The slot for a request; an anonymous one gets the anonymous prompt that shares most tokens with it."""
        slot = self._own(session, token_ids)
        if slot is None:
            slot = self._other()
            slot.session, slot.token_ids = session, packed()
        else:
            self._idle.remove(slot)
        self._in_use.append(slot)
        return slot

    def release(self, slot: RemoteSlot, token_ids: TokenIds) -> bool:
        """End the use of a slot; True if it must be erased, because its document was forgotten meanwhile.

        `token_ids` is what is resident of the prompt now, as far as is known.
        """
        slot.token_ids = token_ids
        self._in_use.remove(slot)
        if (slot.number is None) == (self._server_slots is None):
            self._idle.append(slot)
        if not slot.dropped_on_release:
            return False
        slot.session, slot.token_ids, slot.dropped_on_release = NO_SESSION, packed(), False
        return True

    def note_cached(self, expected: int, cached: int) -> bool:
        """Compare what was expected to be cached with what was; True if everything was lost."""
        if expected - cached <= self._tolerance:
            return False
        self.requests_with_losses += 1
        self.lost_tokens += expected - cached
        return cached == 0

    def unpin(self, session: SessionKey) -> None:
        """Make the session's slots the first that others acquire."""
        for slot in tuple(self._idle):
            if slot.session in (session, session.short):
                self._idle.remove(slot)
                self._idle.insert(0, slot)

    def documents(self) -> set[str]:
        """The documents of all prompts."""
        return {slot.session.document for slot in (*self._idle, *self._in_use) if slot.session.document}

    def forget_all(self) -> list[RemoteSlot]:
        """Forget all prompts, while no slot is in use; returns the slots that must be erased."""
        return [slot for document in {slot.session.document for slot in self._idle} for slot in self.forget(document)]

    def forget(self, document: str) -> list[RemoteSlot]:
        """Forget the prompts of the document; returns the slots that must be erased now.

        A slot in use is forgotten when it is released.
        """
        for slot in self._in_use:
            slot.dropped_on_release |= slot.session.document == document
        found = [slot for slot in self._idle if slot.session.document == document]
        for slot in found:
            slot.session, slot.token_ids = NO_SESSION, packed()
        return found

    def _own(self, session: SessionKey, token_ids: TokenIds) -> RemoteSlot | None:
        own = [slot for slot in self._idle if slot.session == session]
        if session.is_anonymous:
            shared = [(common_prefix_length(slot.token_ids, token_ids), slot) for slot in own]
            length, slot = max(shared, key=lambda entry: entry[0], default=(0, None))
            return slot if length > SHARED_BY_CHANCE else None
        return own[-1] if own else None

    def _other(self) -> RemoteSlot:
        """An empty slot, or the least recently used one."""
        if not self._idle or (self._server_slots is None and len(self._idle) + len(self._in_use) < MAX_SESSIONS):
            return RemoteSlot(None)  # the request waits at the server for any slot
        empty = [slot for slot in self._idle if not slot.session.document]
        slot = (empty or self._idle)[0]
        self._idle.remove(slot)
        return slot
