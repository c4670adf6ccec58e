"""Snapshots in the store: states of recurrent layers at positions in pages, in tiers of their own.

They move down as pages do, from a device to main memory; the disk gets its copies when the store is saved. The least
recently used leave a tier first, and all that are in a page leave with it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence

from kv_store.interface import BadFileError, TierStats
from kv_store.page_tree import Page
from kv_store.snapshots import StateSnapshot
from kv_store.tiers import Storage

SAVED_APART = 32
"""Tokens from a saved snapshot within which no other is saved: they are computed again in one forward, and a state may
have 150 MB."""

Place = tuple[Page, int]
"""A page, and a position in it: the number of tokens up to there, from the beginning of the prefix."""


class SnapshotTier:
    """A byte budget over a storage whose payloads are snapshots; a durable one is the last."""

    def __init__(self, name: str, budget_bytes: int, storage: Storage) -> None:
        self.name = name
        self.budget_bytes = budget_bytes
        self.storage = storage
        self.used_bytes = 0
        self.kept: OrderedDict[Place, tuple[object, int]] = OrderedDict()
        """The storage's reference and the bytes of each, the least recently used first."""

    def adopt(self, place: Place, stored: object, size: int) -> None:
        """Register what the storage already has, as the most recently used."""
        self.kept[place] = stored, size
        self.used_bytes += size

    def get(self, place: Place) -> StateSnapshot:
        """The snapshot; BadFileError if it is damaged."""
        snapshot = self.storage.get(self.kept[place][0])
        assert isinstance(snapshot, StateSnapshot), f"a {type(snapshot).__name__} is stored instead of a snapshot"
        return snapshot

    def remove(self, place: Place) -> None:
        stored, size = self.kept.pop(place)
        self.used_bytes -= size
        self.storage.remove(stored)

    def oldest_beyond(self, budget_bytes: int) -> Iterator[Place]:
        """What is to leave, one after the other, until no more than these bytes are used."""
        while self.used_bytes > budget_bytes:
            yield next(iter(self.kept))


class PageSnapshots:
    """The snapshots of all resident prefixes."""

    def __init__(self, tiers: Sequence[SnapshotTier] = ()) -> None:
        """The fastest tier first; none for a model without recurrent layers."""
        durable = [tier for tier in tiers if tier.storage.durable]
        self._tiers = tuple(tiers)
        self._memory = tuple(tier for tier in tiers if tier not in durable)
        self.disk = durable[-1] if durable else None
        self.disk_takes_writes = True  # as far as the last attempt tells
        self._due: dict[Place, None] = {}  # that the disk may lack

    def deepest(self, path: Sequence[Page], length: int) -> Place | None:
        """The deepest place on a path of pages, up to position `length`, that has a snapshot."""
        if any(tier.kept for tier in self._tiers):
            for page in reversed(path):
                for position in range(min(page.stop, length), page.start, -1):
                    if any((page, position) in tier.kept for tier in self._tiers):
                        return page, position
        return None

    def use(self, place: Place) -> StateSnapshot:
        """The snapshot there, which counts as used: one that is only passed by does not.

        It moves up to the first tier. BadFileError if it is damaged on disk; then it is dropped.
        """
        tier = next(tier for tier in self._tiers if place in tier.kept)
        try:
            snapshot = tier.get(place)
        except BadFileError:
            self._drop(place)
            raise
        for other in self._tiers:
            if place in other.kept:
                other.kept.move_to_end(place)
        if tier is not self._memory[0]:
            self._move(place, snapshot, 0)
        return snapshot

    def put(self, path: Sequence[Page], position: int, snapshot: StateSnapshot) -> None:
        """Keep a snapshot at a position of a path, if the path reaches it and it fits into the budget."""
        page = next((page for page in path if page.start < position <= page.stop), None)
        if page is not None and self._memory and (page, position) not in self._memory[0].kept:
            self._move((page, position), snapshot, 0)
            if self.disk is not None:
                self._due[page, position] = None

    def supersede(self, short: Page, long: Page) -> None:
        """Move the snapshots of a page to a sibling that begins with the same tokens."""
        for tier in self._tiers:
            for page, position in [place for place in tier.kept if place[0] is short]:
                stored, size = tier.kept.pop((page, position))
                tier.kept[long, position] = stored, size
        for page, position in [place for place in self._due if place[0] is short]:
            del self._due[page, position]
            self._due[long, position] = None

    def clear(self, *, disk: bool) -> None:
        for tier in self._tiers if disk else self._memory:
            for place in list(tier.kept):
                tier.remove(place)
        self._due.clear()

    def empty_disk(self) -> None:
        """Remove all from the disk; what memory still has can be saved again."""
        if self.disk is not None:
            for place in list(self.disk.kept):
                self.disk.remove(place)
            self._due = {place: None for tier in self._memory for place in tier.kept}

    def drop_those_of_pages_gone(self) -> None:
        for place in {place for tier in self._tiers for place in tier.kept if not place[0].copies}:
            self._drop(place)

    def due(self) -> Iterator[Place]:
        """What is to be written to disk, until it is: none behind which a restart would compute few tokens again."""
        for place in list(self._due):
            if any(place in tier.kept for tier in self._memory) and not self._is_near_saved(place):
                yield place
            else:
                del self._due[place]

    def keep_on_disk(self, place: Place) -> object | None:
        """Write a snapshot to the disk; its file, None if it never fits. OSError if writing fails."""
        assert self.disk is not None, "there is no disk to save to"
        snapshot = next(tier.get(place) for tier in self._memory if place in tier.kept)
        size = snapshot.size_bytes + self.disk.storage.page_overhead
        if size > self.disk.budget_bytes:
            del self._due[place]
            return None
        stored = self.disk.storage.put(snapshot, 0)  # before others leave, since it can fail
        del self._due[place]
        self.disk.adopt(place, stored, size)
        for oldest in self.disk.oldest_beyond(self.disk.budget_bytes):
            self.disk.remove(oldest)
        return stored

    def stats(self) -> tuple[TierStats, ...]:
        """As of tiers of pages."""
        return tuple(TierStats(tier.name, tier.used_bytes, tier.budget_bytes, 0, len(tier.kept)) for tier in self._tiers)

    def check(self) -> None:
        """Raise AssertionError if bytes or places are inconsistent."""
        for tier in self._tiers:
            sizes = [size for _, size in tier.kept.values()]
            assert tier.used_bytes == sum(sizes) <= tier.budget_bytes, f"{tier.used_bytes} bytes in {tier.name}"
            tier.storage.check([stored for stored, _ in tier.kept.values()])
            for page, position in tier.kept:
                assert page.copies, f"a snapshot at {position} is kept of {page}, which is gone"
                assert page.start < position <= page.stop, f"a snapshot at {position} is kept in {page}"

    def _move(self, place: Place, snapshot: StateSnapshot, level: int) -> None:
        """Have a snapshot in this tier of the memory, or in the next one with room for it, and in no other."""
        for tier in self._memory:
            if place in tier.kept:
                tier.remove(place)
        for below, tier in enumerate(self._memory[level:], start=level):
            if snapshot.size_bytes <= tier.budget_bytes:
                tier.adopt(place, tier.storage.put(snapshot, 0), snapshot.size_bytes)
                for oldest in tier.oldest_beyond(tier.budget_bytes):
                    self._move(oldest, tier.get(oldest), below + 1)
                return

    def _is_near_saved(self, place: Place) -> bool:
        """Whether a snapshot at most SAVED_APART tokens before this place is on disk."""
        page, position = place
        saved: Collection[Place] = () if self.disk is None else self.disk.kept
        first = max(0, position - SAVED_APART)
        while not page.is_root and page.stop > first:
            if any((page, before) in saved for before in range(max(page.start, first) + 1, position + 1)):
                return True
            page = page.parent
        return False

    def _drop(self, place: Place) -> None:
        for tier in self._tiers:
            if place in tier.kept:
                tier.remove(place)
        self._due.pop(place, None)
