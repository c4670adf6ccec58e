"""The store that the engine uses: combines the index, the tiers, sessions and matches."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from kv_store.disk.page_folder import PageFolder
from kv_store.interface import SessionStats, StoreStats, Workspace, document_of
from kv_store.page_tree import PAGE_TOKENS, Page, PageTree
from kv_store.paged import integrity, persistence
from kv_store.paged.match import PageMatch
from kv_store.paged.residency import Residency
from kv_store.tiers.tier import Tier


class PagedStore:
    """All KV outside of workspaces, as a tree of pages over tiers, the fastest one first.

    It finds, keeps and evicts the longest resident prefixes of token ids; it knows sessions' names, but no text.
    If the last tier is a folder, pages that an earlier process saved there are resident from the start.
    Memory is proportional to resident tokens: a page's payload has exactly its tokens. For one thread only.
    """

    def __init__(self, tiers: Sequence[Tier], bytes_per_token: int) -> None:
        if not tiers or any(tier.storage.durable for tier in tiers[:-1]):
            raise ValueError("a store needs at least one tier, and no tier below the disk")
        self._tree = PageTree()
        self._residency = Residency(tiers, self._tree, bytes_per_token)
        self._pinned: set[str] = set()
        self._live: set[PageMatch] = set()
        storage = tiers[-1].storage
        self._folder = storage if isinstance(storage, PageFolder) else None
        if self._folder:
            persistence.restore(self._folder, self._tree, self._residency)

    def match_prefix(self, token_ids: Sequence[int], namespace: str = "") -> PageMatch:
        """The longest resident prefix of `token_ids`, token-granular; length 0 if nothing matches.

        Namespaces share nothing. The documents of all but the empty one are named `namespace/...`.
        """
        path, length = self._tree.find_prefix(tuple(token_ids), namespace)
        return PageMatch(path, length, self._residency, self._live)

    def insert_prefix(self, token_ids: Sequence[int], workspace: Workspace, session: str, namespace: str = "") -> int:
        """Make `token_ids` resident in a namespace; returns how many tokens' KV was missing and copied.

        The workspace must hold the KV of exactly these tokens at [0, len(token_ids)). Within the budget,
        older tails are evicted to make room; if pins leave too little room, fewer tokens are kept.
        """
        if workspace.bytes_per_token != self._residency.bytes_per_token:
            raise ValueError(
                f"a workspace of {workspace.bytes_per_token} bytes per token, "
                f"in a store of {self._residency.bytes_per_token}"
            )
        ids = tuple(token_ids)
        root = self._tree.root_of(namespace)
        path, matched = self._tree.find_prefix(ids, namespace)
        if matched == len(ids) and self._is_kept_for(session, path, matched):
            return 0
        locked = list(path)
        self._residency.lock(locked)
        try:
            if session in self._pinned:  # the pin moves to the new prefix
                self._residency.unlock(self._tree.last_path(session), pins=True)
            self._grow(root, path, matched, ids, workspace, locked)
        finally:  # pages copied before an error are valid and stay
            path = [page for page in path if page.copies]
            self._tree.own(session, path, len(ids))
            self._tree.forget_old_tails(self._pinned)
            for page in reversed(path):  # a pinned page is never let go of, and counts as used now, too
                self._residency.use(page)
            if session in self._pinned:
                self._residency.lock(path, pins=True)
            self._residency.unlock(locked)
        length = min(path[-1].stop, len(ids)) if path else 0
        return max(0, length - matched)

    def pin(self, session: str) -> None:
        """Keep this session's last inserted prefix, and those inserted later, in their tier."""
        if session not in self._pinned:
            self._pinned.add(session)
            self._residency.lock(self._tree.last_path(session), pins=True)

    def unpin(self, session: str) -> None:
        """Undo `pin`; ignores unknown sessions."""
        if session in self._pinned:
            self._pinned.remove(session)
            self._residency.unlock(self._tree.last_path(session), pins=True)

    def purge(self, session: str) -> int:
        """Drop the pages of the session's document alone, its pins and its name, in all tiers; the tokens dropped.

        The document counts for all clients: see `document_of`.

        Only whole pages are dropped, so another document may lose the end of a page that it shared. A prompt with text
        of several documents belongs to the session that inserted it: purge each such session.
        """
        document = document_of(session)
        for pinned in [pinned for pinned in self._pinned if document_of(pinned) == document]:
            self.unpin(pinned)
        orphans = self._tree.disown(document)
        dropped = sum(self._residency.drop(page) for page in orphans if page.copies)
        if self._folder:
            persistence.forget(self._folder, self._residency, document)
        return dropped

    def clear(self, *, disk: bool) -> None:
        """Drop all pages from memory, and with `disk` from every tier. Pages that are only in memory are lost."""
        for level, tier in enumerate(self._residency.tiers):
            if disk or not tier.storage.durable:
                self._residency.empty(level)
        if self._folder:
            persistence.write_if_possible(self._folder, self._residency)

    def stats(self) -> StoreStats:
        return StoreStats(
            tiers=tuple(tier.stats() for tier in self._residency.tiers),
            evicted_tokens=self._residency.evicted_tokens,
            refused=tuple(self._residency.refused),
        )

    def session_stats(self, most: int) -> list[SessionStats]:
        """The residency of at most so many sessions, the latest first."""
        levels = range(len(self._residency.tiers))
        found = []
        for session in islice(reversed(self._tree.tails), most):
            path = self._tree.last_path(session)
            tokens = tuple(sum(len(page) for page in path if level in page.copies) for level in levels)
            found.append(SessionStats(session, tokens))
        return found

    def check_integrity(self) -> None:
        """Raise AssertionError, naming the page, if accounting, references or budgets are inconsistent."""
        integrity.check_tree(self._tree)
        integrity.check_counts(self._tree, self._pinned, self._live)
        integrity.check_tiers(self._tree, self._residency)

    def save(self, seconds: float | None = None) -> bool:
        """Write resident pages to the disk tier, within its budget, the most recently used first.

        Stops after about `seconds` (None: when all is written). Returns True if nothing is left to write; another call
        continues with the rest.
        """
        return persistence.save(self._folder, self._residency, seconds) if self._folder else True

    def close(self) -> None:
        """Release system resources of the tiers, such as folder locks; unsaved pages are lost."""
        if self._folder:
            persistence.write_if_possible(self._folder, self._residency)
        for tier in self._residency.tiers:
            tier.storage.close()

    def _is_kept_for(self, session: str, path: Sequence[Page], length: int) -> bool:
        """Whether this is the session's last inserted prefix, pinned and in the first tier: nothing is left to do.

        Pages are never in a lower tier than their children, and a user of a page used all of its parent.
        """
        if not path or session not in self._pinned or self._tree.tails.get(session) is not path[-1]:
            return False
        return path[-1].level == 0 and path[-1].uses[document_of(session)] >= length - path[-1].start

    def _grow(
        self,
        root: Page,
        path: list[Page],
        matched: int,
        ids: tuple[int, ...],
        workspace: Workspace,
        locked: list[Page],
    ) -> None:
        """Extend the path below the root to as much of `ids` as budgets allow, and lock new pages."""
        short = None
        if matched < len(ids) and path and (path[-1].stop > matched or len(path[-1]) < PAGE_TOKENS):
            short = path.pop()  # it diverges or ends early: a sibling page replaces it on the path
        self._lift(path, matched, workspace)
        while (start := path[-1].stop if path else 0) < len(ids):
            page = self._new_page(path[-1] if path else root, ids[start : start + PAGE_TOKENS], workspace)
            if page is None:
                break
            path.append(page)
            locked.append(page)
            if short and short.stop == matched and short.refs == 1:  # locked by this insertion only
                self._tree.supersede(short, page)
                self._residency.drop(short)
            short = None

    def _lift(self, path: Sequence[Page], length: int, workspace: Workspace) -> None:
        """Move pages up from lower tiers without reading them, since the workspace has their tokens."""
        for page in path:
            if page.level > 0 and page.stop <= length:
                self._residency.promote(page, workspace.export_kv(page.start, page.stop))

    def _new_page(self, parent: Page, token_ids: tuple[int, ...], workspace: Workspace) -> Page | None:
        """A locked page with a copy of its tokens' KV; None if no tier can take it."""
        payload = workspace.export_kv(parent.stop, parent.stop + len(token_ids))
        page = self._tree.add(parent, token_ids)
        self._residency.lock([page])
        try:
            self._residency.place(page, payload)
        finally:
            if not page.copies:
                self._tree.remove(page)
        return page if page.copies else None
