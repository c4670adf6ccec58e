"""Saves resident pages to the disk tier, the most recently used first, and restores them after a restart."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path

from kv_store import purges
from kv_store.disk import PageFile, PageFolder
from kv_store.disk_folders import (
    INDEX_NAME,
    OUR_NAME,
    PageIndex,
    SavedPage,
    SavedSnapshot,
    empty,
    index_files,
    lock_folder,
    model_folders,
    our_files,
    page_name,
    remove_other_models,
)
from kv_store.interface import BadFileError, FolderInUseError, document_of
from kv_store.page_snapshots import PageSnapshots, Place, SnapshotTier
from kv_store.page_tree import PAGE_TOKENS, TOKEN_BYTES, Page, PageTree, pack, prefix_digest, unpack
from kv_store.tiers import Residency

BATCH_PAGES = 64
"""Most pages per transaction of the index; a killed process loses the pages of an open one."""

log = logging.getLogger(__name__)


def save(folder: PageFolder, residency: Residency, snapshots: PageSnapshots | None, seconds: float | None) -> bool:
    """Copy pages to the last tier, the most recently used first, for `seconds` (at least one page); None: all.

    Then copies snapshots, unless they are None. Writes at least one batch of the index. Never evicts a page on disk for
    one used less recently. Returns False if time ran out with something left.
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
            write_if_possible(folder, residency, BATCH_PAGES)
    if unsaved:
        tier.sort()
    if snapshots is not None and not is_over:
        is_over = not _save_snapshots(folder, residency, snapshots, until)
    while write_if_possible(folder, residency, BATCH_PAGES) and (residency.changed or folder.removed):
        if time.monotonic() >= until:
            return False
    return not is_over


def _save_snapshots(folder: PageFolder, residency: Residency, snapshots: PageSnapshots, until: float) -> bool:
    """Write those whose pages are on disk; False if time ran out, after at least one."""
    for place in snapshots.due():
        page, position = place
        if residency.last not in page.copies:
            continue
        try:
            file = snapshots.keep_on_disk(place)
        except OSError as error:
            if snapshots.disk_takes_writes:
                log.warning("no snapshot of recurrent layers is saved until the disk can be written to again: %s", error)
            snapshots.disk_takes_writes = False
            return True
        snapshots.disk_takes_writes = True
        if isinstance(file, PageFile):
            count = position - page.start
            digest = prefix_digest(page.parent.digest, pack(page.token_ids[:count]))
            row = SavedSnapshot(file.number, digest, page.parent.digest, count, file.size, file.sha256)
            folder.added.append(row)
            write_if_possible(folder, residency, BATCH_PAGES)  # a killed process leaves at most one without a row
        if time.monotonic() >= until:
            return False
    return True


def write_index(folder: PageFolder, residency: Residency, most: int | None, forgotten: Collection[str] = ()) -> None:
    """Update the index to `most` changes on disk (None: to all); deletes the names of the `forgotten` documents.

    Entries of removed files go last: after a crash, they tell who owned the pages before them. Raises OSError on
    failure; the next call tries again.
    """
    changed = list(islice(residency.changed, most))
    removed = folder.removed[: None if most is None else most - len(changed)]
    rows = [(_row(page, residency.last), _owners(page, residency.last)) for page in changed]
    added = list(folder.added)
    folder.index.write(removed, rows, forgotten, added)
    del folder.removed[: len(removed)], folder.added[: len(added)]
    for page in changed:
        del residency.changed[page]


def forget(folder: PageFolder, residency: Residency, snapshots: PageSnapshots, documents: Collection[str]) -> None:
    """Write purges to the index. If that fails, empty the disk, since the documents must not remain.

    Logs where the disk keeps even that: memory is purged of this document and of those that follow all the same.
    """
    try:
        write_index(folder, residency, None, documents)
    except OSError as error:
        log.error("removing all saved pages, because a document's cannot be removed: %s", error)
        residency.empty(residency.last)
        snapshots.empty_disk()
        residency.changed.clear()
        folder.removed.clear()
        folder.added.clear()
        try:
            folder.replace_index()
        except (BadFileError, OSError) as failure:
            log.error("the index may keep the name of a document that is purged: %s", failure)


def write_if_possible(folder: PageFolder, residency: Residency, most: int | None = None) -> bool:
    """As `write_index`; logs a failure, once until it succeeds again, and returns False."""
    try:
        write_index(folder, residency, most)
    except OSError as error:
        if not folder.index_is_behind:
            log.warning("the index cannot be written: until then, a restart will not find newly saved pages: %s", error)
        folder.index_is_behind = True
    else:
        folder.index_is_behind = False
    return not folder.index_is_behind


def restore(folder: PageFolder, tree: PageTree, residency: Residency, snapshots: PageSnapshots) -> None:
    """Add saved pages to the (empty) tree as copies in the last tier; a page is not read before it is matched.

    And their snapshots to their last tier, if there is one on this disk.

    Refuses and removes unusable pages, and applies the journal of purges. What this changes in the index is written, so
    that the first save need not.
    """
    refused = [*folder.refused, *remove_other_models(folder.root, folder.folder)]
    try:
        rows, owners = folder.index.read()
        states = folder.index.read_snapshots()
    except BadFileError as error:
        refused.append(str(error))
        folder.replace_index()
        rows, owners, states = [], {}, []
    saved = _add_pages(rows, owners, tree, folder.folder, refused)
    purged = purges.purged(folder.root)
    forgotten = [document for document in tree.documents() if purges.digest(document) in purged]
    for page in chain.from_iterable(map(tree.disown, forgotten)):
        tree.remove(page)
        del saved[page]
    for page in reversed(saved):  # only the last of the pages that are used together is written as used
        page.parent.used = max(page.parent.used, page.used + 1)
    files = _files(saved, folder, refused)
    kept = _within_budget(files, residency, refused)
    for page in reversed(saved):
        if page in files and not page.is_owned:
            refused.append(f"{folder.index.path}: the row of page {files[page].number} names no document")
            files.pop(page)
            kept.pop(page, None)
        if page not in kept:
            tree.remove(page)
    for page in reversed(kept):
        residency.adopt(page, files[page], residency.last)
    for page in kept:
        if page.owners != owners.get(files[page].number, {}):
            residency.note(page)  # it has those of a page that is gone
    residency.go_on_after(max((page.used for page in kept), default=0))
    numbers = {files[page].number for page in kept}
    beside = _adopt_snapshots(states, kept, snapshots.disk, folder, refused)
    numbers |= {file.number for file in beside}
    known = [*(row.number for row in rows), *(row.number for row in states)]
    folder.removed += [number for number in known if number not in numbers]
    folder.go_on_after(max((number for number in known if number < 2**32), default=0))
    folder.remove_other_files((*(files[page] for page in kept), *beside))
    if forgotten:
        forget(folder, residency, snapshots, forgotten)
    else:
        write_if_possible(folder, residency)
    purges.remove_old_entries(folder.root)
    residency.refuse(*refused)


def _adopt_snapshots(
    rows: Sequence[SavedSnapshot], pages: Iterable[Page], tier: SnapshotTier | None, folder: PageFolder, refused: list[str]
) -> list[PageFile]:
    """Register the saved snapshots of these pages, the latest first while there is room; returns their files."""
    found: list[tuple[Place, PageFile]] = []
    room = 0 if tier is None else tier.budget_bytes
    for row, place in reversed(_places(rows, pages)):
        file = PageFile(row.number, 0, row.size, row.sha256)
        try:
            folder.check_size(file)
        except BadFileError as error:
            refused.append(str(error))
            continue
        room -= row.size
        if room < 0:
            break
        found.append((place, file))
    for place, file in reversed(found):
        assert tier is not None, "there is room without a tier"
        tier.adopt(place, file, file.size)
        folder.snapshots.add(file.name)
    return [file for _, file in found]


def _places(rows: Iterable[SavedSnapshot], pages: Iterable[Page]) -> list[tuple[SavedSnapshot, Place]]:
    """The rows that fit the tokens of these pages, with the place of each; of two for a place, the later one."""
    siblings: dict[bytes, list[Page]] = defaultdict(list)
    for page in pages:
        siblings[page.parent.digest].append(page)
    found: dict[Place, SavedSnapshot] = {}
    for row in rows:
        for page in siblings.get(row.parent, ()):
            if 0 < row.count <= len(page) and prefix_digest(row.parent, pack(page.token_ids[: row.count])) == row.digest:
                found[page, page.start + row.count] = row
                break
    return [(row, place) for place, row in sorted(found.items(), key=lambda item: item[1].number)]


def _add_pages(
    rows: Iterable[SavedPage], owners: Mapping[int, dict[str, int]], tree: PageTree, folder: Path, refused: list[str]
) -> dict[Page, SavedPage]:
    """Pages of an empty tree, without copies, for the rows of a folder that fit with their ancestors; parents first.

    The folder's name begins every digest: the rows of another folder do not fit.
    """
    tree.root.digest = folder.name.encode()
    below: dict[bytes, list[SavedPage]] = defaultdict(list)
    latest = {row.digest: row for row in sorted(rows, key=lambda row: row.number)}
    for row in latest.values():  # of two rows of a page, which a crash can leave, the first is of a removed file
        below[row.parent].append(row)
    saved: dict[Page, SavedPage] = {}
    namespaces = {document.partition("/")[0] for documents in owners.values() for document in documents}
    pending = [tree.root, *(tree.root_of(name) for name in sorted(namespaces) if tree.root_digest(name) in below)]
    while pending:
        parent = pending.pop()
        for row in below.pop(parent.digest, ()):
            count = len(row.token_ids) // TOKEN_BYTES
            is_page = 0 < count <= PAGE_TOKENS and (parent.is_root or len(parent) == PAGE_TOKENS) and row.used < 2**62
            if not is_page or prefix_digest(parent.digest, row.token_ids) != row.digest:
                refused.append(f"{folder / INDEX_NAME}: the row of page {row.number} does not fit its parent's")
                continue
            page = tree.add(parent, unpack(row.token_ids))
            page.used = row.used
            for document, used in owners.get(row.number, {}).items():
                if 0 < used <= count:
                    tree.claim(page, document, used)
            saved[page] = row
            pending.append(page)
    return saved


def purge_saved(root: Path, session: str) -> None:
    """Remove pages that only the session's document used from the folders of all models that no process has open.

    Empties a folder whose index is unusable. If a removal fails, goes on with the other folders, then raises OSError.
    """
    failures = []
    for folder in model_folders(root):
        try:
            _purge(folder, document_of(session))
        except FolderInUseError:  # that process purges it
            pass
        except (BadFileError, OSError) as error:
            failures.append(f"{folder}: {error}")
    if failures:
        raise OSError(f"what is saved of a document could not be removed: {'; '.join(failures)}")


def _purge(folder: Path, document: str) -> None:
    lock = lock_folder(folder)
    try:
        with closing(PageIndex(folder / INDEX_NAME)) as index:
            _purge_index(folder, index, document)
    except BadFileError:
        empty(folder)
        if folder.exists() and (left := our_files(folder, OUR_NAME)):
            raise OSError(f"{left[0].name} cannot be removed") from None
    finally:
        lock.release()


def _purge_index(folder: Path, index: PageIndex, document: str) -> None:
    """Remove the files first: what a crash or a failure leaves is found again.

    Snapshots whose page is not saved, and files without a row, go too: nothing tells whose they are.
    """
    rows, owners = index.read()
    tree = PageTree()
    saved = _add_pages(rows, owners, tree, folder, [])
    reowned: dict[Page, None] = {}
    for page in tree.disown(document):
        tree.remove(page)
        del saved[page]
        reowned[page.parent] = None
    states = index.read_snapshots()
    left = {row.number for row in saved.values()} | {row.number for row, _ in _places(states, saved)}
    known = [*(row.number for row in rows), *(row.number for row in states)]
    gone = [number for number in known if number not in left]
    kept = {*map(page_name, left), *(path.name for path in index_files(folder))}
    for path in our_files(folder, OUR_NAME):
        if path.name not in kept:
            path.unlink(missing_ok=True)
    index.write(gone, [(saved[page], page.owners) for page in reowned if page in saved], [document])


def _unsaved(residency: Residency) -> list[Page]:
    """Pages that are only in memory: held ones, then the most recently used first; each after its ancestors."""
    return sorted(residency.unsaved, key=lambda page: (not page.held, page.start if page.held else -page.used))


def _fits_for(page: Page, residency: Residency) -> bool:
    """Whether the last tier can take a page, after evicting less recently used ones if necessary."""
    tier, size = residency.tiers[residency.last], residency.page_bytes(len(page), residency.last)
    return tier.fits(size) or (tier.can_fit(size) and (page.held or tier.oldest().used < page.used))


def _row(page: Page, disk: int) -> SavedPage:
    file = page.copies[disk]
    assert isinstance(file, PageFile), f"{page} is not saved in a file"
    return SavedPage(file.number, page.digest, page.parent.digest, pack(page.token_ids), file.size, file.sha256, page.used)


def _owners(page: Page, disk: int) -> dict[str, int]:
    """A page's owners; where nothing below it is saved, also those of a page below it, which used all of it.

    A saved page without an owner could not be purged.
    """
    owners = dict(page.owners)
    if page.children and not any(disk in child.copies for child in page.children):
        below = page
        while below.children:
            below = below.children[-1]
        owners |= dict.fromkeys(below.owners, len(page))
    return owners


def _files(saved: Mapping[Page, SavedPage], folder: PageFolder, refused: list[str]) -> dict[Page, PageFile]:
    """The files of pages that are as they were written, as those of all their ancestors are; parents first."""
    files: dict[Page, PageFile] = {}
    for page, row in saved.items():
        file = PageFile(row.number, len(page), row.size, row.sha256)
        if page.parent.is_root or page.parent in files:
            try:
                folder.check_file(file)
            except BadFileError as error:
                refused.append(str(error))
            else:
                files[page] = file
    return files


def _within_budget(files: Mapping[Page, PageFile], residency: Residency, refused: list[str]) -> dict[Page, None]:
    """As many pages as the last tier has room for, the most recently used first, each after its ancestors."""
    room = residency.tiers[residency.last].budget_bytes
    kept: dict[Page, None] = {}
    for page in sorted(files, key=lambda page: (-page.used, page.start)):
        room -= residency.page_bytes(len(page), residency.last)
        if room < 0:
            refused.append(f"{files[page].name}: beyond the disk tier's budget, as are all that were used before it")
            break
        kept[page] = None
    return kept
