"""Tracks the tokens whose KV is in a workspace, and exchanges KV with the store."""

from __future__ import annotations

from inference.backends.chunk import Chunk
from inference.engine.sessions import user_of
from inference.text.healing_vocabulary import AllowedIds
from inference.text.token_ids import TokenIds, common_prefix_length, packed
from kv_store.interface import Workspace, document_of
from kv_store.paged.store import PagedStore

SAVE_BEYOND = 4
"""A crop of more prompt tokens than this saves them to the store first; a keystroke retokenizes fewer."""

WORTH_A_LOOK = SAVE_BEYOND
"""Least number of missing tokens for a look-up in the store: fewer are rarely there, and cost less than the walk."""


class Slot:
    """The prompt whose KV is in a workspace, and the session that it belongs to.

    `token_ids` never contains a token without KV: call `extend` only after the forward that wrote it.
    """

    def __init__(
        self, workspace: Workspace, store: PagedStore, alignment: int = 1, *, separate_users: bool = False
    ) -> None:
        """`separate_users` lets a user's request reuse nothing that others' requests have computed."""
        self._alignment = alignment  # reused lengths are cut to a multiple of it, and chunks begin at one
        self._separates_users = separate_users
        self.workspace = workspace
        self.store = store
        self.token_ids = packed()
        self.session = ""
        self._saveable = 0  # leading tokens of a prompt, not of a completion or a cold run
        self._saved = 0  # how many of these are in the store
        self._is_doomed = False  # dropped at the end of the loan
        self._is_pinned = False

    def prepare(self, wanted: TokenIds, session: str) -> int:
        """Bring the longest resident prefix of `wanted` into the workspace; its length, cut to the alignment.

        Crops the workspace if it holds the longest match; otherwise saves its prompt and loads the store's match. Looks
        in the store only if at least WORTH_A_LOOK tokens are missing.
        """
        length = common_prefix_length(self.token_ids, wanted)
        if self._namespace(session) != self._namespace(self.session):
            length = 0
        if len(wanted) - length < WORTH_A_LOOK:
            self.crop(length, will_change=session != self.session)
        else:
            length = self._load(wanted, length, session)
        length -= length % self._alignment
        self.token_ids = wanted[:length]
        self._saveable = length
        self._saved = min(self._saved, length)
        self._own(session)
        return length

    def prepare_cold(self, session: str) -> None:
        """Empty the workspace for a request of this session."""
        self.crop(0)
        self._own(session)

    def chunk(self, token_ids: TokenIds, wanted: int = 0, allowed: AllowedIds | None = None) -> Chunk:
        """The chunk that appends `token_ids` to the resident tokens."""
        length = len(self.token_ids)
        start = length - length % self._alignment
        return Chunk(self.token_ids[start:] + token_ids, start, self.workspace, wanted, allowed)

    def extend(self, token_ids: TokenIds, is_prompt: bool) -> None:
        """Append tokens whose KV has been written; only a prompt's tokens are saved later."""
        if is_prompt and self._saveable == len(self.token_ids):
            self._saveable += len(token_ids)
        self.token_ids.extend(token_ids)

    def crop(self, length: int, will_change: bool = False) -> None:
        """Drop all but the first `length` tokens; saves prompt tokens first if more than SAVE_BEYOND would be lost."""
        if self._saveable - length > SAVE_BEYOND or (will_change and self._saveable > length):
            self.save()
        del self.token_ids[length:]
        self._saveable = min(self._saveable, length)
        self._saved = min(self._saved, length)

    def save(self) -> None:
        """Save the prompt to the store under its session's name, unless it must be forgotten."""
        if self._saveable and not self._is_doomed:
            token_ids, namespace = self.token_ids[: self._saveable], self._namespace(self.session)
            self.store.insert_prefix(token_ids, self.workspace, self.session, namespace)
            self._saved = self._saveable

    @property
    def is_saved(self) -> bool:
        return self._is_doomed or self._saved == self._saveable

    def forget(self, session: str) -> None:
        """Drop the resident prompt if it belongs to the session's document."""
        if document_of(session) == document_of(self.session):
            self.release()
            self.token_ids = packed()
            self._saveable = self._saved = 0
            self.session = ""

    def forget_after_loan(self, session: str) -> None:
        """As `forget`, for a lent workspace: its prompt is not saved any more, and `end_loan` drops it."""
        self._is_doomed |= document_of(session) == document_of(self.session)

    def end_loan(self) -> None:
        if self._is_doomed:
            self.forget(self.session)
            self._is_doomed = False

    def release(self) -> None:
        """Unpin the prompt in the store; the workspace keeps it until another prompt replaces it."""
        self.store.unpin(self.session)
        self._is_pinned = False

    def _load(self, wanted: TokenIds, length: int, session: str) -> int:
        """Load the store's match if it exceeds the `length` tokens in the workspace; returns the resident length."""
        with self.store.match_prefix(wanted, self._namespace(session)) as match:
            longer = match.length > length
            self.crop(length, will_change=longer or session != self.session)
            return match.load(self.workspace, start=length) if longer else length

    def _namespace(self, session: str) -> str:
        return user_of(session) if self._separates_users else ""

    def _own(self, session: str) -> None:
        """Pin this session, and unpin the previous one."""
        if session != self.session or not self._is_pinned:
            self.store.unpin(self.session)
            self.store.pin(session)
            self.session = session
            self._is_pinned = True
