"""Slots: workspaces with their resident prompts, each used by one request at a time, and in exchange with the store."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter

from inference.backends.model import Chunk
from inference.engine.sessions import is_anonymous, is_short, short_session, user_of
from inference.text.token_boundaries import AllowedIds
from inference.text.token_ids import TokenIds, common_prefix_length, packed
from kv_store.interface import Workspace, document_of
from kv_store.store import PagedStore

SAVE_BEYOND = 4
"""A crop of more prompt tokens than this saves them to the store first; a keystroke retokenizes fewer."""

WORTH_A_LOOK = SAVE_BEYOND
"""Least number of missing tokens for a look-up in the store: fewer are rarely there, and cost less than the walk."""


class Slot:
    """The prompt whose KV is in a workspace, and the session that it belongs to.

    `token_ids` never contains a token without KV: call `extend` only after the forward that wrote it. A forward can go
    on behind the last of them: with recurrent layers, they end where the workspace has a snapshot.
    """

    def __init__(self, workspace: Workspace, store: PagedStore, *, separate_users: bool = False) -> None:
        """`separate_users` lets a user's request reuse nothing that others' requests have computed."""
        self._separates_users = separate_users
        self.workspace = workspace
        self.store = store
        self.token_ids = packed()
        self.session = ""
        self.left_at = 0
        """Where the prompt that was prepared last leaves those before it, whether or not a forward can go on there."""
        self._saveable = 0  # leading tokens of a prompt, not of a completion or a cold run
        self._saved = 0  # how many of these are in the store
        self._dropped_on_release = False  # its prompt is dropped when the slot is released
        self._is_pinned = False

    def prepare(self, wanted: TokenIds, session: str) -> int:
        """Bring the longest resident prefix of `wanted` into the workspace; its length.

        Crops the workspace if it holds the longest match; otherwise saves its prompt and loads the store's match. Looks
        in the store only if at least WORTH_A_LOOK tokens are missing.
        """
        common = common_prefix_length(self.token_ids, wanted)
        if self._namespace(session) != self._namespace(self.session):
            common = 0
        self.left_at = common
        if len(wanted) - self.workspace.resumable(common) < WORTH_A_LOOK:
            self.crop(common, will_change=session != self.session)
            length = len(self.token_ids)
        else:
            length = self._load(wanted, common, session)
        self.token_ids = wanted[:length]
        self._saveable = length
        self._saved = min(self._saved, length)
        self._own(session)
        return length

    def prepare_cold(self, session: str) -> None:
        """Empty the workspace for a request of this session."""
        self.crop(0)
        self.left_at = 0
        self._own(session)

    def chunk(self, token_ids: TokenIds, wanted: int = 0, allowed: AllowedIds | None = None) -> Chunk:
        """The chunk that appends `token_ids` to the resident tokens."""
        return Chunk(token_ids, len(self.token_ids), self.workspace, wanted, allowed)

    def extend(self, token_ids: TokenIds, is_prompt: bool, drafted: TokenIds = packed()) -> None:  # noqa: B008
        """Append tokens whose KV has been written, and accepted draft tokens; only a prompt's tokens are saved later.

        Appends nothing if the forward's end is beyond them, and no other can go on behind them.
        """
        if is_prompt and self._saveable == len(self.token_ids):
            self._saveable += len(token_ids)
        self.token_ids += token_ids + drafted
        self._keep(len(self.token_ids))

    def crop(self, length: int, will_change: bool = False) -> None:
        """Drop all but the first `length` tokens, or as many as a forward can go on behind.

        Saves prompt tokens first if more than SAVE_BEYOND would be lost.
        """
        if self._saveable - length > SAVE_BEYOND or (will_change and self._saveable > length):
            self.save()
        self._keep(min(length, len(self.token_ids)))

    def reusable(self, token_ids: TokenIds) -> int:
        """The number of leading tokens behind which a forward could go on here."""
        return self.workspace.resumable(common_prefix_length(self.token_ids, token_ids))

    def save(self) -> None:
        """Save the prompt to the store under its session's name, unless it must be forgotten."""
        if self._saveable and not self._dropped_on_release:
            token_ids, namespace = self.token_ids[: self._saveable], self._namespace(self.session)
            self.store.insert_prefix(token_ids, self.workspace, self.session, namespace)
            self._saved = self._saveable

    @property
    def is_saved(self) -> bool:
        return self._dropped_on_release or self._saved == self._saveable

    def forget(self, session: str) -> None:
        """Drop the resident prompt if it belongs to the session's document."""
        if document_of(session) == document_of(self.session):
            self.unpin()
            self.token_ids = packed()
            self._saveable = self._saved = 0
            self.session = ""
            if self.workspace.snapshots is not None:
                self.workspace.snapshots.drop_beyond(0)

    def drop_on_release(self, session: str) -> None:
        """As `forget`, for a slot in use: its prompt is not saved any more, and `on_release` drops it."""
        self._dropped_on_release |= document_of(session) == document_of(self.session)

    def on_release(self) -> None:
        if self._dropped_on_release:
            self.forget(self.session)
            self._dropped_on_release = False

    def unpin(self) -> None:
        """Unpin the prompt in the store; the workspace keeps it until another prompt replaces it."""
        self.store.unpin(self.session)
        self._is_pinned = False

    def _keep(self, length: int) -> None:
        length = self.workspace.resumable(length)
        del self.token_ids[length:]
        self._saveable = min(self._saveable, length)
        self._saved = min(self._saved, length)

    def _load(self, wanted: TokenIds, common: int, session: str) -> int:
        """Load the store's match if a forward can go on deeper in it than behind the `common` tokens in the workspace.

        Returns the resident length.
        """
        with self.store.match_prefix(wanted, self._namespace(session)) as match:
            self.left_at = max(common, match.length)
            deeper = match.resumable(self.workspace) > self.workspace.resumable(common)
            self.crop(common, will_change=deeper or session != self.session)
            if not deeper:
                return len(self.token_ids)
            return self.workspace.resumable(match.load(self.workspace, start=common))

    def _namespace(self, session: str) -> str:
        return user_of(session) if self._separates_users else ""

    def _own(self, session: str) -> None:
        """Pin this session, and unpin the previous one."""
        if session != self.session or not self._is_pinned:
            self.store.unpin(self.session)
            self.store.pin(session)
            self.session = session
            self._is_pinned = True


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
    all are in use, and until their prompts are saved. If an allocation fails, `count` drops to the number that exist.
    """

    def __init__(
        self,
        count: int,
        kept: int,
        new_workspace: Callable[[], Workspace],
        store: PagedStore,
        context_tokens: int,
        *,
        separate_users: bool = False,
    ) -> None:
        """`context_tokens` is the capacity of a workspace; `separate_users` as in `Slot`."""
        self.count = count
        """Most workspaces that can exist."""
        self._kept = kept
        self._store = store
        self._new_workspace = new_workspace
        self._separates_users = separate_users
        self._context_tokens = context_tokens
        self._idle = [self._new()]  # the least recently used first
        self._in_use: list[Slot] = []

    @contextmanager
    def acquire(self, session: str, token_ids: TokenIds) -> Iterator[Slot]:
        """A workspace for a request of this session; MemoryError if all are in use and another cannot be allocated.

        Prefers the workspace with the session's last prompt, so that typing copies nothing; then a new one that is
        kept, then the least recently used one, then a new one. A short prompt takes a new one, or another short one's,
        before that of a whole one. An anonymous request gets the anonymous prompt that shares the most tokens with its
        own. Saves what other workspaces hold of `token_ids` to the store.
        """
        slot = self._choose(session, token_ids)
        self._in_use.append(slot)
        try:
            self._share(session, token_ids, slot)
            yield slot
        finally:
            self._in_use.remove(slot)
            self._idle.append(slot)
            slot.on_release()

    def missing(self, session: str, token_ids: TokenIds) -> int:
        """Number of these tokens behind the deepest place, in a workspace or the store, where a forward could go on."""
        namespace = user_of(session) if self._separates_users else ""
        slots = (*self._idle, *self._in_use)
        lengths = [slot.reusable(token_ids) for slot in slots if not self._separates_users or user_of(slot.session) == namespace]
        missing = len(token_ids) - max(lengths, default=0)
        if missing >= WORTH_A_LOOK:
            with self._store.match_prefix(token_ids, namespace) as match:
                missing = min(missing, len(token_ids) - match.resumable(slots[0].workspace))
        return missing

    def forget(self, session: str) -> None:
        """Drop the text of the session's document, here and in the store, from every client's sessions.

        A workspace in use is dropped when it is released, and not saved until then.
        """
        for slot in self._idle:
            slot.forget(session)
        for slot in self._in_use:
            slot.drop_on_release(session)
        self._store.purge(session)

    def documents(self) -> set[str]:
        """The documents of all prompts here and in the store."""
        here = {document_of(slot.session) for slot in (*self._idle, *self._in_use) if slot.session}
        return here.union(self._store.documents())

    def unpin(self, session: str) -> None:
        """Unpin the session's prompts: the store may evict them by its ordinary rules."""
        for slot in (*self._idle, *self._in_use):
            if slot.session in (session, short_session(session)):
                slot.unpin()

    def residents(self) -> tuple[Resident, ...]:
        """The resident tokens of the latest MOST_RESIDENTS sessions in workspaces, and of as many in the store."""
        lengths: dict[str, int] = {}
        for slot in (*reversed(self._in_use), *reversed(self._idle)):  # of a session with several, the latest
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
        for slot in (*self._in_use, *reversed(self._idle)):
            if not slot.is_saved:
                slot.save()
                if time.monotonic() >= until:
                    return False
        loose = sorted(self._idle, key=lambda slot: not is_short(slot.session))  # those of short prompts first
        for slot in loose[: max(0, self.allocated - self._kept)]:
            slot.unpin()
            self._idle.remove(slot)
        return True

    def clear(self, *, keep_workspaces: bool) -> None:
        """Drop all prompts, unsaved ones too, and free all workspaces but one; no workspace may be in use."""
        for slot in self._idle:
            slot.forget(slot.session)
        if not keep_workspaces:
            self._idle.clear()  # first, so that the new workspace takes no memory in addition
            self._idle.append(self._new())

    @property
    def allocated(self) -> int:
        """Number of workspaces that exist."""
        return len(self._idle) + len(self._in_use)

    @property
    def workspaces_bytes(self) -> int:
        """Of all that exist, with the snapshots in them."""
        workspaces = [slot.workspace for slot in (*self._idle, *self._in_use)]
        snapshots = sum(each.snapshots.used_bytes for each in workspaces if each.snapshots is not None)
        return snapshots + sum(each.bytes_per_token * self._context_tokens for each in workspaces)

    def _choose(self, session: str, token_ids: TokenIds) -> Slot:
        own = [slot for slot in self._idle if slot.session == session]
        if is_anonymous(session):
            own = _by_shared_tokens(own, token_ids)
        empty = [slot for slot in self._idle if not slot.session]
        whole = sum(not is_short(slot.session) for slot in (*self._idle, *self._in_use))
        may_grow = whole < self._kept or not self._idle
        if is_short(session):  # it takes the place of no whole prompt, and its workspace is freed at the next rest
            may_grow = True
            empty += [slot for slot in self._idle if is_short(slot.session)]
        if not own and not empty and may_grow and self.allocated < self.count:
            try:
                return self._new()
            except MemoryError as error:
                self.count = self.allocated
                log.warning("no memory for more than %d workspaces: %s", self.count, error)
        if not self._idle:
            raise MemoryError(f"all {self.count} workspaces are in use")
        slot = (own[-1:] or empty or self._idle)[0]
        self._idle.remove(slot)
        return slot

    def _new(self) -> Slot:
        return Slot(self._new_workspace(), self._store, separate_users=self._separates_users)

    def _share(self, session: str, token_ids: TokenIds, slot: Slot) -> None:
        """Save the other prompts that share more leading tokens with `token_ids` than the slot's does.

        With separate users, another user's prompts are of no use, and saving them would tell of them by its time.
        """
        others = [other for other in (*self._idle, *self._in_use) if other is not slot and other.token_ids]
        if self._separates_users:
            others = [other for other in others if user_of(other.session) == user_of(session)]
        length = slot.reusable(token_ids) if others else 0
        for other in others:
            if other.reusable(token_ids) > length + SAVE_BEYOND:
                other.save()


def _by_shared_tokens(slots: list[Slot], token_ids: TokenIds) -> list[Slot]:
    """The slots that can reuse more of `token_ids` than markers and a word; the one that can reuse most last."""
    shared = [(slot.reusable(token_ids), slot) for slot in slots]
    return [slot for length, slot in sorted(shared, key=itemgetter(0)) if length > SAVE_BEYOND]
