"""The index: a tree of pages of token ids, matched token by token, with the documents that own each page.

Payloads are always copied into the workspace, so a page may be used in part and two pages may begin alike: a
prefix that diverges inside a page gets a sibling page, and no page is ever split.

A document owns the last page of each prompt of its own; it used what comes before it, too, which says the tree. So a
page that many documents share names none of them, unless their prompts end there, and then only the latest.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from operator import attrgetter

from kv_store.interface import SessionKey

PAGE_TOKENS = 16
DIGEST_BYTES = 16
TOKEN_BYTES = 4
COMPARED_AT_ONCE = 256

REMEMBERED_OWNERS = 8
"""Number of documents that a page names."""

REMEMBERED_TAILS = 256
"""Number of unpinned sessions whose last prompts the tree remembers."""

_token_ids = attrgetter("token_ids")


class Page:
    """A run of 1 to PAGE_TOKENS token ids at one position of one prefix. Only full pages have children.

    A page without copies has left the tree; it still knows its parent.
    """

    __slots__ = ("children", "copies", "digest", "owners", "parent", "pins", "refs", "start", "stop", "token_ids", "used")

    def __init__(self, token_ids: tuple[int, ...], parent: Page | None) -> None:
        self.token_ids = token_ids
        self.parent = self if parent is None else parent
        """The root is its own parent."""
        self.start: int = 0 if parent is None else parent.stop
        self.stop: int = self.start + len(token_ids)
        self.children: list[Page] = []
        """Ordered by token ids, for look-ups by bisection."""
        self.digest: bytes = b"" if parent is None else prefix_digest(parent.digest, pack(token_ids))
        """Digest of the whole prefix that ends with this page."""
        self.copies: dict[int, object] = {}
        """By level of the tier (0 first), the reference that its storage returned."""
        self.owners: dict[str, int] = {}
        """Documents with a prompt that ends in this page, and how many of its tokens they used; the latest last."""
        self.refs = 0
        """Live matches (and running insertions) through this page."""
        self.pins = 0
        """Pinned sessions whose last path goes through this page."""
        self.used = 0
        """When the page was last released, by the clock of `Residency`; later for a page than for its descendants."""

    def __len__(self) -> int:
        return len(self.token_ids)

    def __repr__(self) -> str:
        return f"Page([{self.start}, {self.stop}), tiers {sorted(self.copies)}, refs {self.refs}, pins {self.pins})"

    @property
    def is_root(self) -> bool:
        return self.parent is self

    @property
    def held(self) -> bool:
        """Whether a match or a pin keeps it in its tier."""
        return self.refs > 0 or self.pins > 0

    @property
    def is_owned(self) -> bool:
        """Whether a document that is still named used all of it: one of its own, or an owner of what is below it."""
        return bool(self.children) or max(self.owners.values(), default=0) == len(self)

    @property
    def level(self) -> int:
        """The first tier that has a copy; 0 for the root."""
        return min(self.copies, default=0)


class PageTree:
    """All resident prefixes."""

    def __init__(self) -> None:
        self.root = Page((), None)
        self.tails: dict[SessionKey, Page] = {}
        """The last resident page of each session's last inserted prefix; the latest session last."""
        self._owned: dict[str, set[Page]] = {}
        """The pages of each owner."""

    def find_prefix(self, token_ids: tuple[int, ...]) -> tuple[list[Page], int]:
        """The pages of the longest resident prefix, in order, and its length.

        Only the last page may be matched in part.
        """
        path: list[Page] = []
        page = self.root
        while True:
            wanted = token_ids[page.stop : page.stop + PAGE_TOKENS]
            child, shared = _closest(page.children, wanted)
            if child is None:
                return path, page.stop
            path.append(child)
            if shared < PAGE_TOKENS:
                return path, child.start + shared
            page = child

    def add(self, parent: Page, token_ids: tuple[int, ...]) -> Page:
        """A new page below `parent`, without copies and sessions."""
        assert 0 < len(token_ids) <= PAGE_TOKENS, f"a page of {len(token_ids)} tokens"
        assert parent.is_root or len(parent) == PAGE_TOKENS, f"{parent} is not full"
        place = _place(parent.children, token_ids)
        assert token_ids not in map(_token_ids, parent.children[place : place + 1]), f"{parent} has this child"
        page = Page(token_ids, parent)
        parent.children.insert(place, page)
        return page

    def remove(self, page: Page) -> None:
        """Remove a page without children: its owners' prompts, and its sessions' last paths, end before it."""
        assert not page.children, f"{page} has children"
        for document in list(page.owners):
            self._disclaim(page, document)
            self.claim(page.parent, document, len(page.parent))
        siblings = page.parent.children
        del siblings[_place(siblings, page.token_ids)]
        for session in self._ending_at(page):
            self._set_tail(session, page.parent)

    def supersede(self, short: Page, long: Page) -> None:
        """Transfer owners and tails of a page to be removed to a sibling that begins with the same tokens."""
        assert long.token_ids[: len(short)] == short.token_ids, f"{long} does not begin with {short}"
        for document, count in list(short.owners.items()):
            self._disclaim(short, document)
            self.claim(long, document, count)
        for session in self._ending_at(short):
            self.tails[session] = long
        long.pins, short.pins = short.pins, 0

    def record_last_prefix(self, session: SessionKey, path: Sequence[Page], length: int) -> None:
        """Record that the session's last prefix is these pages, the last of them up to position `length`."""
        if path:
            self.claim(path[-1], session.document, min(path[-1].stop, length) - path[-1].start)
        self.tails.pop(session, None)  # becomes the latest
        self._set_tail(session, path[-1] if path else self.root)

    def claim(self, page: Page, document: str, count: int) -> None:
        """Make the document, which used the page's first `count` tokens, its latest owner.

        If the page then has too many, forgets the earliest: what that one used is what the remaining ones used.
        """
        if page.is_root:
            return
        page.owners[document] = max(count, page.owners.pop(document, 0))
        self._owned.setdefault(document, set()).add(page)
        if len(page.owners) > REMEMBERED_OWNERS:
            needed = max(reversed(page.owners), key=page.owners.__getitem__)
            self._disclaim(page, next(owner for owner in page.owners if owner != needed))

    def disown(self, document: str) -> Iterator[Page]:
        """Remove the document's name; yields pages, children first, that hold more than the documents still named used.

        The caller removes each page before it asks for the next one.
        """
        pages = sorted(self.owned_by(document), key=lambda page: -page.start)
        for page in pages:
            self._disclaim(page, document)
        for session in [session for session in self.tails if session.document == document]:
            del self.tails[session]
        gone: set[Page] = set()
        for page in pages:
            while page not in gone and not page.is_root and not page.is_owned:
                gone.add(page)
                yield page
                page = page.parent

    def owned_by(self, document: str) -> Collection[Page]:
        """The pages that the document owns."""
        return self._owned.get(document, ())

    def documents(self) -> Collection[str]:
        """All documents that own a page."""
        return self._owned.keys()

    def forget_old_tails(self, pinned: Collection[SessionKey]) -> None:
        """Keep the last prompts of REMEMBERED_TAILS sessions, and of those that are pinned."""
        if len(self.tails) > REMEMBERED_TAILS + len(pinned):
            old = [session for session in self.tails if session not in pinned][:-REMEMBERED_TAILS]
            for session in old:
                del self.tails[session]

    def last_path(self, session: SessionKey) -> list[Page]:
        """The pages of the session's last inserted prefix, in order."""
        path = []
        page = self.tails.get(session, self.root)
        while not page.is_root:
            path.append(page)
            page = page.parent
        path.reverse()
        return path

    def pages(self) -> Iterator[Page]:
        """Every page, parents first."""
        return self.subtree(self.root, root=False)

    def subtree(self, page: Page, *, root: bool = True) -> Iterator[Page]:
        """A page and its descendants, parents first."""
        pending = [page] if root else list(page.children)
        while pending:
            below = pending.pop()
            yield below
            pending += below.children

    def _ending_at(self, page: Page) -> list[SessionKey]:
        """The sessions whose last prefix ends with this page."""
        return [session for session, tail in self.tails.items() if tail is page]

    def _disclaim(self, page: Page, document: str) -> None:
        del page.owners[document]
        self._owned[document].remove(page)
        if not self._owned[document]:
            del self._owned[document]

    def _set_tail(self, session: SessionKey, page: Page) -> None:
        if page.is_root:
            self.tails.pop(session, None)
        else:
            self.tails[session] = page


def common_prefix_length(left: Sequence[int], right: Sequence[int]) -> int:
    """Number of equal leading items of two sequences of one type, which are compared in slices."""
    shorter = min(len(left), len(right))
    for start in range(0, shorter, COMPARED_AT_ONCE):
        stop = min(start + COMPARED_AT_ONCE, shorter)
        if left[start:stop] != right[start:stop]:
            return next(position for position in range(start, stop) if left[position] != right[position])
    return shorter


def pack(token_ids: Sequence[int]) -> bytes:
    """Token ids as 32-bit integers in native byte order."""
    return array("I", token_ids).tobytes()


def unpack(packed_ids: bytes) -> tuple[int, ...]:
    """The token ids of `pack`."""
    return tuple(array("I", packed_ids))


def prefix_digest(before: bytes, packed_ids: bytes) -> bytes:
    """The digest of the prefix with digest `before`, continued with these packed token ids."""
    return blake2b(before + packed_ids, digest_size=DIGEST_BYTES).digest()


def _closest(siblings: Sequence[Page], wanted: tuple[int, ...]) -> tuple[Page | None, int]:
    """The page that shares most leading tokens with `wanted`, and their number; it is adjacent to `wanted` in order."""
    place = _place(siblings, wanted)
    closest, shared = None, 0
    for page in siblings[max(0, place - 1) : place + 1]:
        common = common_prefix_length(page.token_ids, wanted)
        if common > shared:
            closest, shared = page, common
    return closest, shared


def _place(siblings: Sequence[Page], token_ids: tuple[int, ...]) -> int:
    """The index of a page with these tokens, present or not."""
    return bisect_left(siblings, token_ids, key=_token_ids)
