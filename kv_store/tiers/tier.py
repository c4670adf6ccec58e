"""One tier: which pages have a copy in it, what they cost, and in what order they may be evicted."""

from __future__ import annotations

from collections import OrderedDict

from kv_store.interface import TierStats
from kv_store.page_tree import Page
from kv_store.tiers.storage import Storage


class Tier:
    """A byte budget over a storage.

    Pages that nothing holds stand in `evictable`, least recently used first, each before its ancestors: tails go
    first. Held pages stand outside the order and come back to its end.
    """

    def __init__(self, name: str, budget_bytes: int, storage: Storage) -> None:
        self.name = name
        self.budget_bytes = budget_bytes
        self.storage = storage
        self.used_bytes = 0
        self.evictable_bytes = 0
        self.tokens = 0
        self.evictable: OrderedDict[Page, int] = OrderedDict()
        self.held: dict[Page, int] = {}
        self.takes_writes = True
        """Whether the last write to the storage succeeded."""

    def can_fit(self, size: int) -> bool:
        """Whether `size` more bytes fit, if need be after evicting."""
        return self.used_bytes - self.evictable_bytes + size <= self.budget_bytes

    def fits(self, size: int) -> bool:
        """Whether `size` more bytes fit as it is."""
        return self.used_bytes + size <= self.budget_bytes

    def oldest(self) -> Page:
        """The page to evict first."""
        return next(iter(self.evictable))

    def add(self, page: Page, size: int) -> None:
        """Count a copy of `size` bytes in, as the most recently used."""
        self.used_bytes += size
        self.tokens += len(page)
        if page.held:
            self.held[page] = size
        else:
            self.evictable[page] = size
            self.evictable_bytes += size

    def remove(self, page: Page) -> None:
        """Count the copy of a page out."""
        size = self.held.pop(page, None)
        if size is None:
            size = self.evictable.pop(page)
            self.evictable_bytes -= size
        self.used_bytes -= size
        self.tokens -= len(page)

    def hold(self, page: Page) -> None:
        """Take a page out of the order."""
        size = self.evictable.pop(page)
        self.evictable_bytes -= size
        self.held[page] = size

    def let_go(self, page: Page) -> None:
        """Put a page back, as the most recently used."""
        size = self.held.pop(page)
        self.evictable[page] = size
        self.evictable_bytes += size

    def touch(self, page: Page) -> None:
        """Make a page the most recently used, if it stands in the order."""
        if page in self.evictable:
            self.evictable.move_to_end(page)

    def sort(self) -> None:
        """Put the order of eviction right after older pages have been added behind newer ones."""
        for page in sorted(self.evictable, key=lambda page: page.used):
            self.evictable.move_to_end(page)

    def stats(self) -> TierStats:
        return TierStats(
            self.name, self.used_bytes, self.budget_bytes, self.tokens, len(self.evictable) + len(self.held)
        )
