"""Saves resident pages to the disk tier, the most recently used first, and restores them after a restart."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping

from kv_store.disk import PageFile, PageFolder
from kv_store.disk_folders import SavedPage, remove_other_models
from kv_store.interface import BadFileError
from kv_store.page_tree import PAGE_TOKENS, TOKEN_BYTES, Page, PageTree, pack, prefix_digest, unpack
from kv_store.tiers import Residency

BATCH_PAGES = 64
"""Pages per transaction of the index; a killed process loses the pages of an open one."""

log = logging.getLogger(__name__)


def save(folder: PageFolder, residency: Residency, seconds: float | None) -> bool:
    """Copy pages to the last tier, the most recently used first, for `seconds` (at least one page); None: all.

    Never evicts a page on disk for one used less recently. Returns False if time ran out with pages left.
    """
    until = math.inf if seconds is None else time.monotonic() + seconds
    tier = residency.tiers[residency.last]
    unsaved = _unsaved(residency)
    is_over = is_sorted = False
    for count, page in enumerate(unsaved, start=1):
        if not is_sorted and not tier.fits(residency.page_bytes(len(page), residency.last)):
            tier.sort()  # evict the least recently used first
            is_sorted = True
        if is_over or not _fits_for(page, residency) or not residency.keep_copy(page, residency.last):
            break
        is_over = time.monotonic() >= until
        if count % BATCH_PAGES == 0:
            write_if_possible(folder, residency)
    if unsaved:
        tier.sort()
    write_if_possible(folder, residency)
    return not is_over


def write_index(folder: PageFolder, residency: Residency, forgotten: str | None = None) -> None:
    """Update the index to the files on disk; deletes the name of the `forgotten` document.

    Raises OSError on failure; the next call tries again.
    """
    rows = [(_row(page, residency.last), page.uses) for page in residency.changed]
    folder.index.write(folder.removed, rows, forgotten)
    folder.removed.clear()
    residency.changed.clear()


def forget(folder: PageFolder, residency: Residency, document: str) -> None:
    """Write a purge to the index. If that fails, empty the whole tier, since the document must not remain."""
    try:
        write_index(folder, residency, document)
    except OSError as error:
        log.error("removing all saved pages, because one document's cannot be removed: %s", error)
        residency.empty(residency.last)
        residency.changed.clear()
        folder.removed.clear()
        folder.replace_index()


def write_if_possible(folder: PageFolder, residency: Residency) -> None:
    """Update the index to the files on disk; logs a failure, once until it succeeds again."""
    try:
        write_index(folder, residency)
    except OSError as error:
        if not folder.index_is_behind:
            log.warning("the index cannot be written: until then, a restart will not find newly saved pages: %s", error)
        folder.index_is_behind = True
    else:
        folder.index_is_behind = False


def restore(folder: PageFolder, tree: PageTree, residency: Residency) -> None:
    """Add saved pages to the (empty) tree as copies in the last tier; a page is not read before it is matched.

    Refuses and removes unusable pages.
    """
    tree.root.digest = folder.identity
    refused = [*folder.refused, *remove_other_models(folder.root, folder.folder)]
    rows, uses = _read_index(folder, refused)
    files = _add_pages(rows, uses, folder, tree, refused)
    kept = _within_budget(files, residency, refused)
    for page in reversed(kept):
        residency.adopt(page, files[page], residency.last)
        residency.use(page)  # in this process's time, which the next save writes for all of them
    for page in reversed(files):
        if not page.copies:
            tree.remove(page)
    numbers = {files[page].number for page in kept}
    folder.removed += [row.number for row in rows if row.number not in numbers]
    folder.remove_other_files(files[page] for page in kept)
    residency.refuse(*refused)


def _unsaved(residency: Residency) -> list[Page]:
    """Pages that are only in memory; each after its ancestors."""
    pages = sorted({page for tier in residency.tiers[:-1] for page in tier.held}, key=lambda page: page.start)
    for tier in residency.tiers[:-1]:
        pages += reversed(tier.evictable)
    return [page for page in pages if residency.last not in page.copies]


def _fits_for(page: Page, residency: Residency) -> bool:
    """Whether the last tier can take a page, after evicting less recently used ones if necessary."""
    tier, size = residency.tiers[residency.last], residency.page_bytes(len(page), residency.last)
    return tier.fits(size) or (tier.can_fit(size) and (page.held or tier.oldest().used < page.used))


def _row(page: Page, disk: int) -> SavedPage:
    file = page.copies[disk]
    assert isinstance(file, PageFile), f"{page} is not saved in a file"
    return SavedPage(
        file.number, page.digest, page.parent.digest, pack(page.token_ids), file.size, file.sha256, page.used
    )


def _read_index(folder: PageFolder, refused: list[str]) -> tuple[list[SavedPage], Mapping[int, dict[str, int]]]:
    try:
        return folder.index.read()
    except BadFileError as error:
        refused.append(str(error))
        folder.replace_index()
        return [], {}


def _add_pages(
    rows: Iterable[SavedPage],
    uses: Mapping[int, dict[str, int]],
    folder: PageFolder,
    tree: PageTree,
    refused: list[str],
) -> dict[Page, PageFile]:
    """Pages, without copies, for the usable rows with all their ancestors, parents first."""
    below: dict[bytes, list[SavedPage]] = defaultdict(list)
    for row in rows:
        below[row.parent].append(row)
    files: dict[Page, PageFile] = {}
    namespaces = {document.partition("/")[0] for documents in uses.values() for document in documents}
    pending = [tree.root, *(tree.root_of(name) for name in sorted(namespaces) if tree.root_digest(name) in below)]
    while pending:
        parent = pending.pop()
        for row in below.pop(parent.digest, ()):
            try:
                page, files[page] = _add_page(row, uses.get(row.number, {}), parent, folder, tree)
            except BadFileError as error:
                refused.append(str(error))
            else:
                pending.append(page)
    return files


def _add_page(
    row: SavedPage, uses: Mapping[str, int], parent: Page, folder: PageFolder, tree: PageTree
) -> tuple[Page, PageFile]:
    """The row's page and file. Raises BadFileError if the row does not fit the tree, or its file was changed."""
    file = PageFile(row.number, len(row.token_ids) // TOKEN_BYTES, row.size, row.sha256)
    is_page = 0 < file.count <= PAGE_TOKENS and (parent.is_root or len(parent) == PAGE_TOKENS)
    if not is_page or prefix_digest(parent.digest, row.token_ids) != row.digest:
        raise BadFileError(folder.index.path, f"the row of page {row.number} does not fit its parent's")
    # A document that used a page used all of its parent; a page without documents could not be purged.
    used_by = {document: used for document, used in uses.items() if 0 < used <= file.count}
    if not parent.is_root:
        used_by = {name: used for name, used in used_by.items() if parent.uses.get(name) == PAGE_TOKENS}
    if not used_by:
        raise BadFileError(folder.index.path, f"the row of page {row.number} names no document")
    folder.check_file(file)
    page = tree.add(parent, unpack(row.token_ids))
    page.used = row.used
    page.uses.update(used_by)
    return page, file


def _within_budget(files: dict[Page, PageFile], residency: Residency, refused: list[str]) -> list[Page]:
    """As many pages as the last tier has room for, the most recently used first, each after its ancestors."""
    for page in reversed(files):
        page.parent.used = max(page.parent.used, page.used)
    room = residency.tiers[residency.last].budget_bytes
    kept: list[Page] = []
    for page in sorted(files, key=lambda page: (-page.used, page.start)):
        room -= residency.page_bytes(len(page), residency.last)
        if room < 0:
            refused.append(f"{files[page].name}: beyond the disk tier's budget, as are all that were used before it")
            break
        kept.append(page)
    return kept
