"""The store that the engine uses: combines page tree, tiers, sessions and matches, and checks its own accounting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import islice

from kv_store import persistence
from kv_store.disk import PageFolder
from kv_store.interface import BadFileError, ReleasedMatchError, SessionStats, StoreStats, Workspace, document_of
from kv_store.page_snapshots import PageSnapshots, SnapshotTier
from kv_store.page_tree import PAGE_TOKENS, REMEMBERED_OWNERS, Page, PageTree, pack, prefix_digest
from kv_store.snapshots import Snapshots
from kv_store.tiers import Residency, Tier


class PageMatch:
    """The longest resident prefix of a request, protected from eviction until released. Use it in a `with`.

    `length` is the number of leading tokens that are resident, in any tier.
    """

    def __init__(
        self, pages: Sequence[Page], length: int, residency: Residency, snapshots: PageSnapshots, live: set[PageMatch]
    ) -> None:
        self.pages = tuple(pages)
        self.length = length
        self._residency = residency
        self._snapshots = snapshots
        self._live = live
        """The store's live matches, including this one until it is released."""
        residency.lock(self.pages)
        live.add(self)

    def resumable(self, workspace: Workspace) -> int:
        """The position where a forward could go on in the workspace, once this is loaded."""
        if workspace.snapshots is None:
            return self.length
        place = self._snapshots.deepest(self.pages, self.length)
        return 0 if place is None else place[1]

    def load(self, workspace: Workspace, start: int = 0) -> int:
        """Write the KV of tokens [start, length) into the workspace, which holds [0, start) already.

        Returns the number of leading tokens now in the workspace: `length`, or less (at least `start`) if a page is
        unreadable on disk or was purged since; `length` shrinks with it. Loaded pages move up to the first tier,
        within its budget. For a model with recurrent layers, `length` is where the deepest readable snapshot is, which
        the workspace gets too.
        """
        self._check_live()
        if workspace.snapshots is not None:
            self.length = self.resumable(workspace)
        for page in self.pages:
            if page.start >= self.length:
                break
            if not self._load_page(page, workspace, start):
                self.length = page.start
        if workspace.snapshots is not None:
            self._load_snapshot(workspace.snapshots)
        return max(start, self.length)

    def release(self) -> None:
        """End the protection of the pages; raises ReleasedMatchError the second time."""
        self._check_live()
        self._live.remove(self)
        self._residency.unlock(self.pages)

    def __enter__(self) -> PageMatch:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def _load_page(self, page: Page, workspace: Workspace, start: int) -> bool:
        """Load the page's tokens from `start` on into the workspace; False if the page is unreadable."""
        if not page.copies:
            return False
        if page.stop <= start:
            if page.level > 0:  # the workspace has these tokens: skip the read from the lower tier
                self._residency.promote(page, workspace.export_kv(page.start, page.stop))
            return True
        payload = self._residency.read(page)
        if not page.copies:
            return False
        first, last = max(page.start, start), min(page.stop, self.length)
        if first < last:
            workspace.import_kv(first, payload, last - first, skip=first - page.start)
        self._residency.promote(page, payload)
        return True

    def _load_snapshot(self, snapshots: Snapshots) -> None:
        """Put the deepest readable snapshot up to `length` into the workspace, and shrink `length` to it."""
        while (place := self._snapshots.deepest(self.pages, self.length)) is not None:
            self.length = place[1]
            try:
                snapshots.put(self.length, self._snapshots.use(place))
            except BadFileError as error:
                self._residency.refuse(str(error))
            else:
                return
        self.length = 0

    def _check_live(self) -> None:
        if self not in self._live:
            raise ReleasedMatchError(f"the match of {self.length} tokens was released")


def check_tree(tree: PageTree) -> None:
    """Check pages, their order, parents and tiers."""
    for parent in (*tree.roots.values(), *tree.pages()):
        in_order = sorted(parent.children, key=lambda child: child.token_ids)
        assert parent.children == in_order, f"the children of {parent} are not in the order of their token ids"
        for page in parent.children:
            _check_page(page, parent)


def _check_page(page: Page, parent: Page) -> None:
    assert page.parent is parent, f"{page} is a child of {parent}, which is not its parent"
    assert page.digest == prefix_digest(parent.digest, pack(page.token_ids)), f"{page} has another's digest"
    assert 0 < len(page) <= PAGE_TOKENS, f"{page} has {len(page)} tokens"
    assert parent.is_root or len(parent) == PAGE_TOKENS, f"{page} is below {parent}, which is not full"
    assert (page.start, page.stop) == (parent.stop, parent.stop + len(page)), f"{page} is not after {parent}"
    assert page.copies, f"{page} is in no tier"
    assert parent.level <= page.level, f"{page} is in a higher tier than {parent}"


def check_counts(tree: PageTree, pinned: Collection[str], live: Collection[PageMatch]) -> None:
    """Check sessions, pins and references."""
    refs = Counter(page for match in live for page in match.pages)
    pins = Counter(page for session in pinned for page in tree.last_path(session))
    resident = set(tree.pages())
    for page in resident:
        assert page.refs == refs[page], f"{page} is used by {refs[page]} live matches"
        assert page.pins == pins[page], f"{page} is on the paths of {pins[page]} pinned sessions"
        for document, used in page.owners.items():
            assert 0 < used <= len(page), f"{page} has {used} tokens used by {document}"
            assert page in tree.owned_by(document), f"{page}: its owners are not those that the tree finds"
        assert len(page.owners) <= REMEMBERED_OWNERS, f"{page} names {len(page.owners)} owners"
        assert page.is_owned, f"{page} has no owner that used all of it"
    for session, tail in tree.tails.items():
        assert tail in resident, f"the last path of {session} ends at {tail}, which is gone"


def check_tiers(tree: PageTree, residency: Residency) -> None:
    """Check bytes, budgets, the order of eviction, and the contents of the storages."""
    resident = list(tree.pages())
    if residency.tiers[-1].storage.durable:
        unsaved = {page for page in resident if residency.last not in page.copies}
        assert residency.unsaved == unsaved, f"{unsaved ^ residency.unsaved} are saved, or are not"
    for level, tier in enumerate(residency.tiers):
        pages = [page for page in resident if level in page.copies]
        sizes = {page: residency.page_bytes(len(page), level) for page in pages}
        assert {**tier.held, **tier.evictable} == sizes, f"the {tier.name} tier counts other pages than it has"
        assert not tier.held.keys() & tier.evictable.keys(), f"the {tier.name} tier counts pages twice"
        assert tier.used_bytes == sum(sizes.values()), f"the {tier.name} tier counts {tier.used_bytes} bytes"
        assert tier.evictable_bytes == sum(tier.evictable.values()), f"the {tier.name} tier's evictable bytes are wrong"
        assert tier.tokens == sum(map(len, pages)), f"the {tier.name} tier counts {tier.tokens} tokens"
        assert tier.used_bytes <= tier.budget_bytes, f"the {tier.name} tier is over its budget"
        _check_order(tier)
        tier.storage.check([page.copies[level] for page in pages])


def _check_order(tier: Tier) -> None:
    seen: set[Page] = set()
    for page in tier.evictable:
        assert not page.held, f"{page} is held, but may be evicted from the {tier.name} tier"
        ancestor = page.parent
        while ancestor.parent is not ancestor:
            assert ancestor not in seen, f"{ancestor} would leave the {tier.name} tier before {page}, which is below it"
            assert ancestor.used >= page.used or ancestor.held, f"{ancestor} was used before {page}, which is below it"
            ancestor = ancestor.parent
        seen.add(page)
    for page in tier.held:
        assert page.held, f"{page} is not held, but cannot be evicted from the {tier.name} tier"


class PagedStore:
    """All KV outside of workspaces, as a tree of pages over tiers, the fastest one first.

    It finds, keeps and evicts the longest resident prefixes of token ids; it knows sessions' names, but no text.
    If the last tier is a folder, pages that an earlier process saved there are resident from the start.
    Memory is proportional to resident tokens: a page's payload has exactly its tokens. For one thread only.
    """

    def __init__(self, tiers: Sequence[Tier], bytes_per_token: int, snapshots: Sequence[SnapshotTier] = ()) -> None:
        """`snapshots` are the tiers of snapshots of recurrent layers."""
        if not tiers or any(tier.storage.durable for tier in tiers[:-1]):
            raise ValueError("a store needs at least one tier, and no tier below the disk")
        self._tree = PageTree()
        self._residency = Residency(tiers, self._tree, bytes_per_token)
        self._snapshots = PageSnapshots(snapshots)
        self._pinned: set[str] = set()
        self._live: set[PageMatch] = set()
        storage = tiers[-1].storage
        self._folder = storage if isinstance(storage, PageFolder) else None
        if self._folder:
            persistence.restore(self._folder, self._tree, self._residency, self._snapshots)

    def match_prefix(self, token_ids: Sequence[int], namespace: str = "") -> PageMatch:
        """The longest resident prefix of `token_ids`, token-granular; length 0 if nothing matches.

        Namespaces share nothing. The documents of all but the empty one are named `namespace/...`.
        """
        path, length = self._tree.find_prefix(tuple(token_ids), namespace)
        return PageMatch(path, length, self._residency, self._snapshots, self._live)

    def insert_prefix(self, token_ids: Sequence[int], workspace: Workspace, session: str, namespace: str = "") -> int:
        """Make `token_ids` resident in a namespace; returns how many tokens' KV was missing and copied.

        The workspace must hold the KV of exactly these tokens at [0, len(token_ids)). Within the budget,
        older tails are evicted to make room; if pins leave too little room, fewer tokens are kept.
        """
        if workspace.bytes_per_token != self._residency.bytes_per_token:
            raise ValueError(
                f"a workspace of {workspace.bytes_per_token} bytes per token, in a store of {self._residency.bytes_per_token}"
            )
        ids = tuple(token_ids)
        root = self._tree.root_of(namespace)
        path, matched = self._tree.find_prefix(ids, namespace)
        if matched == len(ids) and self._is_kept_for(session, path, matched):
            self._keep_snapshots(path, matched, workspace)
            return 0
        locked = list(path)
        self._residency.lock(locked)
        try:
            if session in self._pinned:  # the pin moves to the new prefix
                self._residency.unlock(self._tree.last_path(session), pins=True)
            self._grow(root, path, matched, ids, workspace, locked)
        finally:  # pages copied before an error are valid and stay
            path = [page for page in path if page.copies]
            self._tree.record_last_prefix(session, path, len(ids))
            self._tree.forget_old_tails(self._pinned)
            self._residency.use(path)  # a pinned page is never let go of, and counts as used now, too
            if session in self._pinned:
                self._residency.lock(path, pins=True)
            self._residency.unlock(locked)
        length = min(path[-1].stop, len(ids)) if path else 0
        self._keep_snapshots(path, length, workspace)
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
        dropped = sum(self._residency.drop(page) for page in self._tree.disown(document))
        self._snapshots.drop_those_of_pages_gone()
        if self._folder:
            persistence.forget(self._folder, self._residency, self._snapshots, (document,))
        return dropped

    def documents(self) -> Collection[str]:
        """The documents that own pages."""
        return self._tree.documents()

    def clear(self, *, disk: bool) -> None:
        """Drop all pages from memory, and with `disk` from every tier. Pages that are only in memory are lost."""
        for level, tier in enumerate(self._residency.tiers):
            if disk or not tier.storage.durable:
                self._residency.empty(level)
        self._snapshots.clear(disk=disk)
        self._snapshots.drop_those_of_pages_gone()
        if self._folder:
            persistence.write_if_possible(self._folder, self._residency)

    def stats(self) -> StoreStats:
        self._snapshots.drop_those_of_pages_gone()
        return StoreStats(
            tiers=(*(tier.stats() for tier in self._residency.tiers), *self._snapshots.stats()),
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
            found.append(SessionStats(session, tokens + (0,) * len(self._snapshots.stats())))
        return found

    def check_integrity(self) -> None:
        """Raise AssertionError, naming the page, if accounting, references or budgets are inconsistent."""
        check_tree(self._tree)
        check_counts(self._tree, self._pinned, self._live)
        check_tiers(self._tree, self._residency)
        self._snapshots.drop_those_of_pages_gone()  # as the next insertion would
        self._snapshots.check()

    def save(self, seconds: float | None = None, *, snapshots: bool = True) -> bool:
        """Write resident pages to the disk tier, within its budget, the most recently used first, then `snapshots`.

        Stops after about `seconds` (None: when all is written); writing one snapshot can take longer. Returns True if
        nothing is left to write; another call continues with the rest.
        """
        written = self._snapshots if snapshots else None
        return persistence.save(self._folder, self._residency, written, seconds) if self._folder else True

    def close(self) -> None:
        """Release system resources of the tiers, such as folder locks; unsaved pages are lost."""
        if self._folder:
            persistence.write_if_possible(self._folder, self._residency)
        for tier in self._residency.tiers:
            tier.storage.close()

    def _keep_snapshots(self, path: Sequence[Page], length: int, workspace: Workspace) -> None:
        """Keep the workspace's snapshots up to `length` beside their pages, and none of pages that had to leave."""
        if workspace.snapshots is not None:
            self._snapshots.drop_those_of_pages_gone()
            for position, snapshot in workspace.snapshots.lasting(length):
                self._snapshots.put(path, position, snapshot)

    def _is_kept_for(self, session: str, path: Sequence[Page], length: int) -> bool:
        """Whether this is the session's last inserted prefix, pinned and in the first tier: nothing is left to do.

        Pages are never in a lower tier than their children.
        """
        if not path or session not in self._pinned or self._tree.tails.get(session) is not path[-1]:
            return False
        return path[-1].level == 0 and path[-1].owners.get(document_of(session), 0) >= length - path[-1].start

    def _grow(
        self, root: Page, path: list[Page], matched: int, ids: tuple[int, ...], workspace: Workspace, locked: list[Page]
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
                self._snapshots.supersede(short, page)
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
