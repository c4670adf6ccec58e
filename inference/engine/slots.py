"""Owns the engine's slots: workspaces with their resident prompts, each lent to one request at a time."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter

from inference.engine.sessions import is_anonymous, user_of
from inference.engine.slot import SAVE_BEYOND, Slot
from inference.text.token_ids import TokenIds, common_prefix_length
from kv_store.interface import Workspace
from kv_store.paged.store import PagedStore

log = logging.getLogger(__name__)


MOST_RESIDENTS = 32


@dataclass(frozen=True, slots=True)
class Resident:
    """The tokens of a session's last prompt that are resident: in its workspace, and in each tier of the store."""

    session: str
    workspace: int
    tiers: tuple[int, ...] = ()  # in the order of `StoreStats.tiers`


class Slots:
    """Up to `count` workspaces, `kept` of them for prompts of documents that take turns.

    All but the first are allocated on first need: the kept ones for another document's prompt, further ones only if
    all are lent, and until their prompts are saved. If an allocation fails, `count` drops to the number that exist.
    """

    def __init__(
        self,
        count: int,
        kept: int,
        new_workspace: Callable[[], Workspace],
        store: PagedStore,
        context_tokens: int,
        alignment: int = 1,
        *,
        separate_users: bool = False,
    ) -> None:
        """`context_tokens` is the capacity of a workspace; `separate_users` as in `Slot`."""
        self.count = count
        """Most workspaces that can exist."""
        self._kept = kept
        self._store = store
        self._new_workspace = new_workspace
        self._alignment = alignment
        self._separates_users = separate_users
        self._context_tokens = context_tokens
        self._idle = [self._new()]  # the least recently used first
        self._lent: list[Slot] = []

    @contextmanager
    def lend(self, session: str, token_ids: TokenIds) -> Iterator[Slot]:
        """A workspace for a request of this session; MemoryError if all are lent and another cannot be allocated.

        Prefers the workspace with the session's last prompt, so that typing copies nothing; then a new one that is
        kept, then the least recently used one, then a new one. An anonymous request gets the anonymous prompt that
        shares the most tokens with its own. Saves what other workspaces hold of `token_ids` to the store.
        """
        slot = self._choose(session, token_ids)
        self._lent.append(slot)
        try:
            self._share(session, token_ids, slot)
            yield slot
        finally:
            self._lent.remove(slot)
            self._idle.append(slot)
            slot.end_loan()

    def forget(self, session: str) -> None:
        """Drop the text of the session's document, here and in the store, from every client's sessions.

        A lent workspace is dropped at the end of its loan, and not saved until then.
        """
        for slot in self._idle:
            slot.forget(session)
        for slot in self._lent:
            slot.forget_after_loan(session)
        self._store.purge(session)

    def release(self, session: str) -> None:
        """Unpin the session's prompt: the store may evict it by its ordinary rules."""
        for slot in (*self._idle, *self._lent):
            if slot.session == session:
                slot.release()

    def residents(self) -> tuple[Resident, ...]:
        """What is resident of the latest MOST_RESIDENTS sessions in workspaces, and of as many in the store."""
        lengths: dict[str, int] = {}
        for slot in (*reversed(self._lent), *reversed(self._idle)):  # of a session with several, the latest
            if slot.session and slot.token_ids:
                lengths.setdefault(slot.session, len(slot.token_ids))
        stored = {stats.session: stats.tokens for stats in self._store.session_stats(MOST_RESIDENTS)}
        sessions = dict.fromkeys((*list(lengths)[:MOST_RESIDENTS], *stored))
        return tuple(Resident(name, lengths.get(name, 0), stored.get(name, ())) for name in sessions)

    def save(self, seconds: float | None = None) -> bool:
        """Save the resident prompts to the store, the most recently used first, for about `seconds`.

        Saves at least one workspace; returns False if time ran out. Then frees the workspaces that are not kept.
        """
        until = math.inf if seconds is None else time.monotonic() + seconds
        for slot in (*self._lent, *reversed(self._idle)):
            if not slot.is_saved:
                slot.save()
                if time.monotonic() >= until:
                    return False
        del self._idle[: max(0, min(len(self._idle), self.allocated - self._kept))]
        return True

    def clear(self, *, keep_workspaces: bool) -> None:
        """Drop all prompts, unsaved ones too, and free all workspaces but one; no workspace may be lent."""
        for slot in self._idle:
            slot.forget(slot.session)
        if not keep_workspaces:
            self._idle.clear()  # first, so that the new workspace takes no memory in addition
            self._idle.append(self._new())

    @property
    def allocated(self) -> int:
        """Number of workspaces that exist."""
        return len(self._idle) + len(self._lent)

    @property
    def workspace_bytes(self) -> int:
        slot = (*self._idle, *self._lent)[0]
        return slot.workspace.bytes_per_token * self._context_tokens

    def _choose(self, session: str, token_ids: TokenIds) -> Slot:
        own = [slot for slot in self._idle if slot.session == session]
        if is_anonymous(session):
            own = _by_shared_tokens(own, token_ids)
        empty = [slot for slot in self._idle if not slot.session]
        most = min(self._kept, self.count) if self._idle else self.count
        if not own and not empty and self.allocated < most:
            try:
                return self._new()
            except MemoryError as error:
                self.count = self.allocated
                log.warning("no memory for more than %d workspaces: %s", self.count, error)
        if not self._idle:
            raise MemoryError(f"all {self.count} workspaces are lent")
        slot = (own[-1:] or empty or self._idle)[0]
        self._idle.remove(slot)
        return slot

    def _new(self) -> Slot:
        return Slot(self._new_workspace(), self._store, self._alignment, separate_users=self._separates_users)

    def _share(self, session: str, token_ids: TokenIds, slot: Slot) -> None:
        """Save the other prompts that share more leading tokens with `token_ids` than the slot's does.

        With separate users, another user's prompts are of no use, and saving them would tell of them by its time.
        """
        others = [other for other in (*self._idle, *self._lent) if other is not slot and other.token_ids]
        if self._separates_users:
            others = [other for other in others if user_of(other.session) == user_of(session)]
        length = common_prefix_length(slot.token_ids, token_ids) if others else 0
        for other in others:
            if common_prefix_length(other.token_ids, token_ids) > length + SAVE_BEYOND:
                other.save()


def _by_shared_tokens(slots: list[Slot], token_ids: TokenIds) -> list[Slot]:
    """The slots that share more leading tokens with `token_ids` than markers and a word; the longest match last."""
    shared = [(common_prefix_length(slot.token_ids, token_ids), slot) for slot in slots]
    return [slot for length, slot in sorted(shared, key=itemgetter(0)) if length > SAVE_BEYOND]
