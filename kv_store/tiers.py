"""Tiers of the store: the pages in each, their bytes and order of eviction, and the moves of pages between tiers.

Two invariants hold. No tier exceeds its budget. And no page is in a lower tier than its children: a page is demoted or
dropped only after its descendants, so that the rest of a prefix is always its beginning.
"""

from __future__ import annotations

import itertools
import logging
from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from kv_store.interface import BadFileError, TierStats
from kv_store.page_tree import Page, PageTree

# ruff: noqa: ARG002 -- memory keeps a payload as it is


class Storage(Protocol):
    """Keeps payloads and hands out references to them."""

    page_overhead: int
    """Most bytes that a page takes here beyond its KV."""
    durable: bool
    """Whether copies here outlive the process; they then stay when a page moves up."""

    def put(self, payload: object, count: int) -> object:
        """Keep the KV of `count` tokens; returns a reference for `get`. Raises OSError if writing fails."""
        ...

    def get(self, stored: object) -> object:
        """The payload. Raises BadFileError if it is damaged."""
        ...

    def remove(self, stored: object) -> None:
        """Drop the payload; its reference becomes invalid."""
        ...

    def close(self) -> None:
        """Release system resources."""
        ...


class MemoryStorage:
    """Keeps payloads as they are; the reference is the payload."""

    page_overhead = 0
    durable = False

    def put(self, payload: object, count: int) -> object:
        return payload

    def get(self, stored: object) -> object:
        return stored

    def remove(self, stored: object) -> None:
        return

    def close(self) -> None:
        return


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
        self._is_sorted = True
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
            self._is_sorted &= not self.evictable or next(reversed(self.evictable)).used <= page.used
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

    def release(self, page: Page) -> None:
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
        if not self._is_sorted:
            for page in sorted(self.evictable, key=lambda page: page.used):
                self.evictable.move_to_end(page)
            self._is_sorted = True

    def stats(self) -> TierStats:
        return TierStats(self.name, self.used_bytes, self.budget_bytes, self.tokens, len(self.evictable) + len(self.held))


REMEMBERED_REFUSALS = 100

log = logging.getLogger(__name__)


class Residency:
    """Places copies of pages in tiers (`Page.copies`, by level; 0 is the first)."""

    def __init__(self, tiers: Sequence[Tier], tree: PageTree, bytes_per_token: int) -> None:
        self.tiers = tuple(tiers)
        self.last = len(self.tiers) - 1
        """Level of the last tier."""
        self.bytes_per_token = bytes_per_token
        self.evicted_tokens = 0
        self.refused: deque[str] = deque(maxlen=REMEMBERED_REFUSALS)
        self.changed: dict[Page, None] = {}
        """Pages of a durable last tier whose entry in its index is missing or outdated, in the order of the changes."""
        self.unsaved: set[Page] = set()
        """Pages that a durable last tier lacks."""
        self._tree = tree
        self._clock = itertools.count(1)
        self._durable = self.last if self.tiers[-1].storage.durable else None

    def page_bytes(self, count: int, level: int) -> int:
        """Bytes of a page of `count` tokens in a tier."""
        return count * self.bytes_per_token + self.tiers[level].storage.page_overhead

    # -- holding: pages that matches or pins use are neither demoted nor dropped ---------------------------------------

    def lock(self, pages: Iterable[Page], *, pins: bool = False) -> None:
        """Keep pages in their tiers, for a match, or for a session that `pins` them; calls nest. Parents first."""
        for page in pages:
            if not page.held:
                for level in page.copies:
                    self.tiers[level].hold(page)
            page.pins += pins
            page.refs += not pins

    def unlock(self, pages: Sequence[Page], *, pins: bool = False) -> None:
        """Undo one `lock`: pages that nothing else keeps become the most recently used, the first one last."""
        for page in pages:
            page.pins -= pins
            page.refs -= not pins
        unheld = [page for page in pages if not page.held]
        self.use(unheld)
        for page in reversed(unheld):
            for level in page.copies:
                self.tiers[level].release(page)

    def use(self, pages: Sequence[Page]) -> None:
        """Count pages of a path, parents first, as the most recently used, the first one last.

        Only the last saved one is to be written: from it follow the ranks of those before it, and it names the owner.
        """
        for page in reversed(pages):
            page.used = next(self._clock)
        for page in reversed(pages):
            if self._durable in page.copies:
                self.note(page)
                break

    def go_on_after(self, used: int) -> None:
        """Count every later use as later than this one of an earlier process."""
        self._clock = itertools.count(used + 1)

    def note(self, page: Page) -> None:
        """Count the entry of a page in the index as outdated, if it is to have one."""
        if self._durable in page.copies:
            self.changed[page] = None

    # -- copies --------------------------------------------------------------------------------------------------------

    def place(self, page: Page, payload: object) -> bool:
        """Keep a new page in the first tier that can take it, not above its parent; False if none can."""
        return any(self._put(page, payload, level) for level in range(page.parent.level, len(self.tiers)))

    def promote(self, page: Page, payload: object) -> None:
        """Move a page up as far as budgets allow, not above its parent."""
        for level in range(page.parent.level, page.level):
            if self.tiers[level].can_fit(self.page_bytes(len(page), level)):
                break
        else:
            return
        for below in list(page.copies):  # first, so that pages demoted from above find room
            if not self.tiers[below].storage.durable:
                self._remove_copy(page, below)
        try:
            self._put(page, payload, level)
        finally:
            if not page.copies:
                self.drop(page)

    def keep_copy(self, page: Page, level: int) -> bool:
        """Add a copy to this lower tier, as its most recently used; False without room, if damaged, or not written."""
        payload = self.read(page)
        return bool(page.copies) and self._put(page, payload, level)

    def read(self, page: Page) -> object | None:
        """The payload from the first tier with a copy; if it is damaged, drops the page and returns None."""
        try:
            return self.tiers[page.level].storage.get(page.copies[page.level])
        except BadFileError as error:  # only the last tier raises it, so this was the last copy
            self.refuse(str(error))
            self.drop(page)
            return None

    def refuse(self, *reasons: str) -> None:
        """Report the reasons for refused saved files in the statistics and in one log line."""
        if reasons:
            more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
            log.warning("refused %s%s", reasons[0], more)
            self.refused.extend(reasons)

    def drop(self, page: Page) -> int:
        """Remove a page and its descendants from every tier and from the tree; returns the tokens dropped."""
        dropped = 0
        for below in reversed(list(self._tree.subtree(page))):
            for level in list(below.copies):
                self._remove_copy(below, level)
            self._tree.remove(below)
            self.note(below.parent)  # which has other owners now
            dropped += len(below)
        return dropped

    def empty(self, level: int) -> None:
        """Remove every copy from a tier, and pages without another copy."""
        for page in [*self.tiers[level].evictable, *self.tiers[level].held]:
            if len(page.copies) > 1:
                self._remove_copy(page, level)
            elif page.copies:
                self.drop(page)

    def _put(self, page: Page, payload: object, level: int) -> bool:
        tier, size = self.tiers[level], self.page_bytes(len(page), level)
        if not tier.can_fit(size):
            return False
        while not tier.fits(size):
            self._demote(tier.oldest(), level)
        try:
            stored = tier.storage.put(payload, len(page))
        except OSError as error:
            if tier.takes_writes:
                log.warning("the %s tier takes no more pages until it can be written to again: %s", tier.name, error)
            tier.takes_writes = False
            return False
        if not tier.takes_writes:
            log.info("the %s tier can be written to again", tier.name)
            tier.takes_writes = True
        self.adopt(page, stored, level)
        if level == self._durable:
            self.note(page)
        ancestor = page.parent
        while not ancestor.is_root and not ancestor.held:  # ancestors are evicted after it
            tier.touch(ancestor)
            ancestor = ancestor.parent
        return True

    def adopt(self, page: Page, stored: object, level: int) -> None:
        """Register a copy that a tier's storage already has, as the most recently used; it must fit."""
        tier = self.tiers[level]
        page.copies[level] = stored
        self._note_saved(page)
        tier.add(page, self.page_bytes(len(page), level))
        assert tier.used_bytes <= tier.budget_bytes, f"{page} does not fit the {tier.name} tier"

    def _demote(self, page: Page, level: int) -> None:
        """Move the copy from a tier to the next one that can take it, or drop it."""
        if level == page.level:
            floor = min((child.level for child in page.children), default=len(self.tiers))
            for below in range(level + 1, min(floor, len(self.tiers) - 1) + 1):
                if below in page.copies or self._put(page, self.read(page), below):
                    break
            else:
                self.evicted_tokens += self.drop(page)
                return
        self._remove_copy(page, level)

    def _remove_copy(self, page: Page, level: int) -> None:
        stored = page.copies.pop(level)
        if level == self._durable:
            self.changed.pop(page, None)
            self.note(page.parent)  # it may be the last saved page now
        self._note_saved(page)
        self.tiers[level].remove(page)
        self.tiers[level].storage.remove(stored)

    def _note_saved(self, page: Page) -> None:
        if self._durable is not None:
            if page.copies and self._durable not in page.copies:
                self.unsaved.add(page)
            else:
                self.unsaved.discard(page)
