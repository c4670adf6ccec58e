"""The handle on the longest resident prefix of a request."""

from __future__ import annotations

from collections.abc import Sequence

from kv_store.errors import ReleasedMatchError
from kv_store.interface import Workspace
from kv_store.page_tree import Page
from kv_store.paged.residency import Residency


class PageMatch:
    """The longest resident prefix of a request, protected from eviction until released. Use it in a `with`.

    `length` is the number of leading tokens that are resident, in any tier.
    """

    def __init__(self, pages: Sequence[Page], length: int, residency: Residency, live: set[PageMatch]) -> None:
        self.pages = tuple(pages)
        self.length = length
        self._residency = residency
        self._live = live
        """The store's live matches, including this one until it is released."""
        residency.lock(self.pages)
        live.add(self)

    def load(self, workspace: Workspace, start: int = 0) -> int:
        """Write the KV of tokens [start, length) into the workspace, which holds [0, start) already.

        Returns the number of leading tokens now in the workspace: `length`, or less (at least `start`) if a page is
        unreadable on disk or was purged since; `length` shrinks with it. Loaded pages move up to the first tier,
        within its budget.
        """
        self._check_live()
        for page in self.pages:
            if page.start >= self.length:
                break
            if not self._load_page(page, workspace, start):
                self.length = page.start
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

    def _check_live(self) -> None:
        if self not in self._live:
            raise ReleasedMatchError(f"the match of {self.length} tokens was released")
