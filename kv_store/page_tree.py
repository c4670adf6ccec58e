"""The index: a tree of pages of token ids, matched token by token, and who used which page.

Payloads are always copied into the workspace, so a page may be used in part and two pages may begin alike: a
prefix that diverges inside a page gets a sibling page, and no page is ever split.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

PAGE_TOKENS = 16


class Page:
    """A run of 1 to PAGE_TOKENS token ids at one place of one prefix. Only full pages have children.

    A page without copies has left the tree; it still knows its parent.
    """

    __slots__ = ("children", "copies", "owners", "parent", "pins", "refs", "start", "stop", "token_ids")

    def __init__(self, token_ids: tuple[int, ...], parent: Page | None) -> None:
        self.token_ids = token_ids
        self.parent = self if parent is None else parent
        """The root is its own parent."""
        self.start: int = 0 if parent is None else parent.stop
        self.stop: int = self.start + len(token_ids)
        self.children: dict[tuple[int, ...], Page] = {}
        self.copies: dict[int, object] = {}
        """Level of a tier (0 first) to the reference that its storage gave."""
        self.owners: dict[str, int] = {}
        """Who used this page, and how many of its tokens. Whoever used a page used all of its parent."""
        self.refs = 0
        """Live matches (and running insertions) through this page."""
        self.pins = 0
        """Pinned owners whose last path goes through this page."""

    def __len__(self) -> int:
        return len(self.token_ids)

    def __repr__(self) -> str:
        return f"Page([{self.start}, {self.stop}), tiers {sorted(self.copies)}, refs {self.refs}, pins {self.pins})"

    @property
    def held(self) -> bool:
        """Whether a match or a pin keeps it where it is."""
        return self.refs > 0 or self.pins > 0

    @property
    def level(self) -> int:
        """The first tier that has a copy; 0 for the root."""
        return min(self.copies, default=0)


class PageTree:
    """All resident prefixes."""

    def __init__(self) -> None:
        self.root = Page((), None)
        self.tails: dict[str, Page] = {}
        """The last page of what was last inserted for each owner, as far as it is still resident."""

    def find_prefix(self, token_ids: tuple[int, ...]) -> tuple[list[Page], int]:
        """The pages of the longest resident prefix, first one first, and its length.

        Only the last page may be matched in part.
        """
        path: list[Page] = []
        page, position = self.root, 0
        while child := page.children.get(token_ids[position : position + PAGE_TOKENS]):
            path.append(child)
            page, position = child, child.stop
        rest = token_ids[position : position + PAGE_TOKENS]
        closest, shared = None, 0
        for child in page.children.values():
            common = common_prefix_length(child.token_ids, rest)
            if common > shared:
                closest, shared = child, common
        if closest:
            path.append(closest)
        return path, position + shared

    def add(self, parent: Page, token_ids: tuple[int, ...]) -> Page:
        """A new page below `parent`, as yet without copies and owners."""
        assert 0 < len(token_ids) <= PAGE_TOKENS, f"a page of {len(token_ids)} tokens"
        assert parent is self.root or len(parent) == PAGE_TOKENS, f"{parent} is not full"
        assert token_ids not in parent.children, f"{parent} has this child"
        page = Page(token_ids, parent)
        parent.children[token_ids] = page
        return page

    def remove(self, page: Page) -> None:
        """Take a page without children out; its owners' last paths end before it."""
        assert not page.children, f"{page} has children"
        del page.parent.children[page.token_ids]
        for owner in page.owners:
            if self.tails.get(owner) is page:
                self._set_tail(owner, page.parent)

    def supersede(self, short: Page, long: Page) -> None:
        """Hand what is known of a page that is about to go to a sibling that begins with the same tokens."""
        assert long.token_ids[: len(short)] == short.token_ids, f"{long} does not begin with {short}"
        for owner, count in short.owners.items():
            long.owners[owner] = max(count, long.owners.get(owner, 0))
            if self.tails.get(owner) is short:
                self.tails[owner] = long
        long.pins, short.pins = short.pins, 0

    def own(self, owner: str, path: Sequence[Page], length: int) -> None:
        """Record that the owner's last prefix is these pages, the last of them up to position `length`."""
        for page in path:
            used = min(page.stop, length) - page.start
            if used > page.owners.get(owner, 0):
                page.owners[owner] = used
        self._set_tail(owner, path[-1] if path else self.root)

    def disown(self, owner: str) -> list[Page]:
        """Forget the owner; the pages (parents first) that hold more than the other owners used."""
        self.tails.pop(owner, None)
        orphans: list[Page] = []
        pending = [self.root]
        while pending:
            page = pending.pop()
            pending += [child for child in page.children.values() if child.owners.pop(owner, 0)]
            if max(page.owners.values(), default=0) < len(page):
                orphans.append(page)
        return orphans

    def owners(self) -> set[str]:
        """Whoever used any page: they all used one of the first."""
        return {owner for page in self.root.children.values() for owner in page.owners}

    def last_path(self, owner: str) -> list[Page]:
        """The pages of what was last inserted for the owner, first one first."""
        path = []
        page = self.tails.get(owner, self.root)
        while page is not self.root:
            path.append(page)
            page = page.parent
        path.reverse()
        return path

    def pages(self) -> Iterator[Page]:
        """Every page, parents first."""
        return self.subtree(self.root, root=False)

    def subtree(self, page: Page, *, root: bool = True) -> Iterator[Page]:
        """A page and all below it, parents first."""
        pending = [page] if root else list(page.children.values())
        while pending:
            below = pending.pop()
            yield below
            pending += below.children.values()

    def _set_tail(self, owner: str, page: Page) -> None:
        if page is self.root:
            self.tails.pop(owner, None)
        else:
            self.tails[owner] = page


def common_prefix_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading items are equal."""
    length = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        length += 1
    return length
