"""One tier: tracks the pages with a copy in it, their bytes, and their order of eviction."""

from __future__ import annotations

from collections import OrderedDict

from kv_store.interface import TierStats
from kv_store.page_tree import Page
from kv_store.tiers.storage import Storage


class Tier:
    """A byte budget over a storage.

    Pages without a lock or pin are in `evictable`, least recently used first, each before its ancestors: tails are
    evicted first. Held pages are outside the order and return to its end.
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
        """Whether `size` more bytes fit, after eviction if necessary."""
        return self.used_bytes - self.evictable_bytes + size <= self.budget_bytes

    def fits(self, size: int) -> bool:
        """Whether `size` more bytes fit without eviction."""
        return self.used_bytes + size <= self.budget_bytes

    def oldest(self) -> Page:
        """The page to evict first."""
        return next(iter(self.evictable))

    def add(self, page: Page, size: int) -> None:
        """Add a copy of `size` bytes, as the most recently used."""
        self.used_bytes += size
        self.tokens += len(page)
        if page.held:
            self.held[page] = size
        else:
            self.evictable[page] = size
            self.evictable_bytes += size

    def remove(self, page: Page) -> None:
        size = self.held.pop(page, None)
        if size is None:
            size = self.evictable.pop(page)
            self.evictable_bytes -= size
        self.used_bytes -= size
        self.tokens -= len(page)

    def hold(self, page: Page) -> None:
        """Remove a page from the order of eviction."""
        size = self.evictable.pop(page)
        self.evictable_bytes -= size
        self.held[page] = size

    def let_go(self, page: Page) -> None:
        """Return a page to the order, as the most recently used."""
        size = self.held.pop(page)
        self.evictable[page] = size
        self.evictable_bytes += size

    def touch(self, page: Page) -> None:
        """Make a page the most recently used, if it is in the order."""
        if page in self.evictable:
            self.evictable.move_to_end(page)

    def sort(self) -> None:
        """Restore the order of eviction after older pages were added behind newer ones."""
        for page in sorted(self.evictable, key=lambda page: page.used):
            self.evictable.move_to_end(page)

    def stats(self) -> TierStats:
        return TierStats(
            self.name, self.used_bytes, self.budget_bytes, self.tokens, len(self.evictable) + len(self.held)
        )
