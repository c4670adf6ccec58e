"""Saves what is resident to the disk tier, and finds it there after a restart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kv_store.errors import BadFileError
from kv_store.index_file import PageFile, SavedPage
from kv_store.page_folder import PageFolder
from kv_store.page_tree import Page, PageTree
from kv_store.residency import Residency
from kv_store.tier import Tier


def save(folder: PageFolder, residency: Residency) -> int:
    """Copy the most recently used pages to the last tier, as many as its budget takes, and write the index.

    Returns the tokens that `restore` will find. Raises OSError where the index cannot be written.
    """
    disk = len(residency.tiers) - 1
    room = residency.tiers[disk].budget_bytes
    chosen: list[Page] = []
    for page in _most_recent_first(residency.tiers[:disk]):
        room -= residency.page_bytes(len(page), disk)
        if room < 0:
            break
        chosen.append(page)
    for page in reversed(chosen):  # the most recent last, so that it is the last to be evicted
        residency.keep_copy(page, disk)
    return write_index(folder, residency)


def write_index(folder: PageFolder, residency: Residency) -> int:
    """Write the index of what is on disk; the tokens in it."""
    disk = len(residency.tiers) - 1
    places: dict[Page, int] = {}
    saved: list[SavedPage] = []
    for page in _most_recent_first(residency.tiers[disk:]):
        begins = page.parent.parent is page.parent
        if begins or page.parent in places:  # without its parent's copy it would be of no use
            file = page.copies[disk]
            assert isinstance(file, PageFile), f"{page} is not saved in a file"
            places[page] = len(saved)
            saved.append(SavedPage(page.token_ids, -1 if begins else places[page.parent], dict(page.owners), file))
    folder.write_index(saved)
    return sum(len(page.token_ids) for page in saved)


def restore(folder: PageFolder, tree: PageTree, residency: Residency) -> None:
    """Put what was saved into the (empty) tree, as copies in the last tier; no page is read before it is matched.

    What must not be used is refused, and removed.
    """
    for reason in folder.remove_other_models():
        residency.refuse(reason)
    try:
        saved = folder.read_index()
    except BadFileError as error:
        residency.refuse(str(error))
        folder.remove_index()
        saved = []
    restored = _add_pages(saved, folder, tree, residency)
    for page, file in reversed(restored):  # saved most recent first
        residency.adopt(page, file, len(residency.tiers) - 1)
    folder.remove_other_files(file for _, file in restored)


def _add_pages(
    saved: Sequence[SavedPage], folder: PageFolder, tree: PageTree, residency: Residency
) -> list[tuple[Page, PageFile]]:
    """Pages, without copies yet, for the entries whose files look right and fit the budget, parents first."""
    disk = len(residency.tiers) - 1
    room = residency.tiers[disk].budget_bytes
    pages: dict[int, Page] = {-1: tree.root}
    restored: list[tuple[Page, PageFile]] = []
    for place, entry in enumerate(saved):
        path = folder.folder / entry.file.name
        if entry.parent not in pages:  # refused: what follows it is of no use
            continue
        try:
            folder.check_file(entry.file)
        except BadFileError as error:
            residency.refuse(str(error))
            continue
        room -= residency.page_bytes(entry.file.count, disk)
        if room < 0:
            residency.refuse(f"{path}: beyond the disk tier's budget, as are all that were used less recently")
            break
        page = tree.add(pages[entry.parent], entry.token_ids)
        page.owners.update(entry.owners)
        pages[place] = page
        restored.append((page, entry.file))
    return restored


def _most_recent_first(tiers: Sequence[Tier]) -> Iterator[Page]:
    """Pages with copies in these tiers; each after its ancestors."""
    yield from sorted({page for tier in tiers for page in tier.held}, key=lambda page: page.start)
    for tier in tiers:
        yield from reversed(tier.evictable)
