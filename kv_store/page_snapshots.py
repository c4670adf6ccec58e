"""Snapshots in the store: states of recurrent layers at positions in pages; the least recently used leave first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from operator import itemgetter

from kv_store.interface import TierStats
from kv_store.page_tree import Page
from kv_store.snapshots import StateSnapshot

Place = tuple[Page, int]
"""A page, and a position in it: the number of tokens up to there, from the beginning of the prefix."""


class PageSnapshots:
    """The snapshots of all resident prefixes, in memory alone: a page that leaves the tree takes its own with it."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self._kept: OrderedDict[Place, StateSnapshot] = OrderedDict()  # the least recently used first

    def deepest(self, path: Sequence[Page], length: int) -> Place | None:
        """The deepest place on a path of pages, up to position `length`, that has a snapshot."""
        pages = set(path) if self._kept else ()
        places = [place for place in self._kept if place[0] in pages and place[1] <= length]
        return max(places, key=itemgetter(1), default=None)

    def use(self, place: Place) -> StateSnapshot:
        """The snapshot there, which counts as used: one that is only passed by does not."""
        self._kept.move_to_end(place)
        return self._kept[place]

    def put(self, path: Sequence[Page], position: int, snapshot: StateSnapshot) -> None:
        """Keep a snapshot at a position of a path, if the path reaches it and it fits into the budget."""
        page = next((page for page in path if page.start < position <= page.stop), None)
        if page is None or (page, position) in self._kept or snapshot.size_bytes > self.budget_bytes:
            return
        self._kept[page, position] = snapshot
        self.used_bytes += snapshot.size_bytes
        while self.used_bytes > self.budget_bytes:
            self._drop(next(iter(self._kept)))

    def supersede(self, short: Page, long: Page) -> None:
        """Move the snapshots of a page to a sibling that begins with the same tokens."""
        for page, position in [place for place in self._kept if place[0] is short]:
            snapshot = self._kept[page, position]
            self._drop((page, position))
            self.put([long], position, snapshot)

    def clear(self) -> None:
        self._kept.clear()
        self.used_bytes = 0

    def drop_those_of_pages_gone(self) -> None:
        for place in [place for place in self._kept if not place[0].copies]:
            self._drop(place)

    def stats(self) -> tuple[TierStats, ...]:
        """As of a tier; none without a budget, as for a model without recurrent layers."""
        told = TierStats("snapshots", self.used_bytes, self.budget_bytes, 0, len(self._kept))
        return (told,) if self.budget_bytes else ()

    def check(self) -> None:
        """Raise AssertionError if bytes or places are inconsistent."""
        sizes = [snapshot.size_bytes for snapshot in self._kept.values()]
        assert self.used_bytes == sum(sizes) <= self.budget_bytes, f"{self.used_bytes} bytes of snapshots are counted"
        for page, position in self._kept:
            assert page.copies, f"a snapshot at {position} is kept of {page}, which is gone"
            assert page.start < position <= page.stop, f"a snapshot at {position} is kept in {page}"

    def _drop(self, place: Place) -> None:
        self.used_bytes -= self._kept.pop(place).size_bytes
