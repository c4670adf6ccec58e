"""What a workspace holds: its token ids, kept in step with the KV, and exchanged with the store."""

from __future__ import annotations

from inference.backends.chunk import Chunk
from inference.text.healing_vocabulary import AllowedIds
from inference.text.token_ids import TokenIds, common_prefix_length, packed
from kv_store.interface import KVStore, Workspace, document_of

SAVE_BEYOND = 4
"""A crop that loses more prompt tokens than a keystroke retokenizes saves them to the store first, for going back."""

WORTH_A_LOOK = SAVE_BEYOND
"""So many tokens have to be missing for the store to be asked: of fewer, what a keystroke crops is rarely saved, and to
compute them costs less than the walk."""


class ResidentPrompt:
    """The one prompt whose KV is in a workspace, and whose it is.

    `token_ids` never claims a token whose KV is not there: extend it only after the forward that wrote it.
    """

    def __init__(self, workspace: Workspace, store: KVStore, alignment: int = 1) -> None:
        self._alignment = alignment  # what is reused is cut to a multiple of it, and chunks begin at one
        self.workspace = workspace
        self.store = store
        self.token_ids = packed()
        self.session = ""
        self._saveable = 0  # leading tokens that belong to a prompt, rather than to a suggestion or a cold run
        self._saved = 0  # of these, how many are in the store
        self._is_doomed = False  # to be dropped at the end of the loan
        self._is_pinned = False

    def prepare(self, wanted: TokenIds, session: str) -> int:
        """Bring the longest resident prefix of `wanted` into the workspace; its length, cut to the alignment.

        What is in the workspace is cropped where that is the longest; otherwise it is saved, and the store's match
        takes its place. The store is asked only where WORTH_A_LOOK tokens are missing.
        """
        length = common_prefix_length(self.token_ids, wanted)
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
        """Make the workspace empty, for a request of this session."""
        self.crop(0)
        self._own(session)

    def chunk(self, token_ids: TokenIds, wanted: int = 0, allowed: AllowedIds | None = None) -> Chunk:
        """What the model has to compute for `token_ids` to stand after those that are here."""
        length = len(self.token_ids)
        start = length - length % self._alignment
        return Chunk(self.token_ids[start:] + token_ids, start, self.workspace, wanted, allowed)

    def extend(self, token_ids: TokenIds, is_prompt: bool) -> None:
        """Note tokens whose KV has been written after those that are here; only a prompt's are worth saving."""
        if is_prompt and self._saveable == len(self.token_ids):
            self._saveable += len(token_ids)
        self.token_ids.extend(token_ids)

    def crop(self, length: int, will_change: bool = False) -> None:
        """Forget all but the first `length` tokens; prompt tokens are saved first if many would be lost."""
        if self._saveable - length > SAVE_BEYOND or (will_change and self._saveable > length):
            self.save()
        del self.token_ids[length:]
        self._saveable = min(self._saveable, length)
        self._saved = min(self._saved, length)

    def save(self) -> None:
        """Make the prompt resident in the store, under its session's name, unless it is to be forgotten."""
        if self._saveable and not self._is_doomed:
            self.store.insert_prefix(self.token_ids[: self._saveable], self.workspace, self.session)
            self._saved = self._saveable

    @property
    def is_saved(self) -> bool:
        """Whether nothing came to the prompt since it was saved."""
        return self._is_doomed or self._saved == self._saveable

    def forget(self, session: str) -> None:
        """Drop what is here if it is of the session's document."""
        if document_of(session) == document_of(self.session):
            self.release()
            self.token_ids = packed()
            self._saveable = self._saved = 0
            self.session = ""

    def forget_after_loan(self, session: str) -> None:
        """The same for a workspace that a request works on: it is not saved any more, and dropped by `end_loan`."""
        self._is_doomed |= document_of(session) == document_of(self.session)

    def end_loan(self) -> None:
        """The request that had the workspace is done with it."""
        if self._is_doomed:
            self.forget(self.session)
            self._is_doomed = False

    def release(self) -> None:
        """Unpin the prompt in the store; what is here stays until another prompt takes its place."""
        self.store.unpin(self.session)
        self._is_pinned = False

    def _load(self, wanted: TokenIds, length: int, session: str) -> int:
        """The length of the longest resident prefix, here or in the store; `length` of it are here."""
        with self.store.match_prefix(wanted) as match:
            longer = match.length > length
            self.crop(length, will_change=longer or session != self.session)
            return match.load(self.workspace, start=length) if longer else length

    def _own(self, session: str) -> None:
        """Pin the session that is being worked on, and unpin the one before."""
        if session != self.session or not self._is_pinned:
            self.store.unpin(self.session)
            self.store.pin(session)
            self.session = session
            self._is_pinned = True
