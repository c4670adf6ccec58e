"""Checks the accounts of a store: pages and their tiers, references, budgets, and what the storages keep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from torch import Tensor

from inference.engine.engine import Engine
from kv_store.disk import PageFile, PageFolder, SnapshotFiles
from kv_store.disk_folders import PAGE_NAME, our_files
from kv_store.interface import SessionKey
from kv_store.page_snapshots import PageSnapshots
from kv_store.page_tree import PAGE_TOKENS, REMEMBERED_OWNERS, Page, PageTree, pack, prefix_digest
from kv_store.store import PagedStore, PageMatch
from kv_store.tiers import Residency, Storage, Tier
from kv_store.workspace import HostStorage, TensorStorage


def check_integrity(of: PagedStore | Engine) -> None:
    """Raise AssertionError, naming the page, if accounting, references or budgets are inconsistent."""
    store = of._store if isinstance(of, Engine) else of
    check_tree(store._tree)
    check_counts(store._tree, store._pinned, store._live)
    check_tiers(store._tree, store._residency)
    store._snapshots.drop_those_of_pages_gone()  # as the next insertion would
    check_snapshots(store._snapshots)


def check_storage(storage: Storage, stored: Collection[object]) -> None:
    """Raise AssertionError unless exactly these references are kept."""
    files = {file.name for file in stored if isinstance(file, PageFile)}
    if isinstance(storage, PageFolder):
        assert len(files) == len(stored), f"{storage.folder}: not every copy has a file of its own"
        found = {path.name for path in our_files(storage.folder, PAGE_NAME)} - storage.snapshots
        assert found <= files, f"{storage.folder}: files of no page: {sorted(found - files)}"
    elif isinstance(storage, SnapshotFiles):
        assert files == storage.folder.snapshots, f"{storage.folder.folder}: other files are counted as snapshots"
    elif isinstance(storage, TensorStorage):
        for tensor in stored:
            assert isinstance(tensor, Tensor), f"a {type(tensor).__name__} is stored instead of a tensor"
            assert tensor.device == storage._device, f"a page is on {tensor.device} instead of {storage._device}"
    if isinstance(storage, HostStorage):
        kept = {tensor.data_ptr() for tensor in stored if isinstance(tensor, Tensor)}
        left = set(storage._used) - kept
        assert not left, f"{len(left)} places in pinned memory belong to no page"


def check_snapshots(snapshots: PageSnapshots) -> None:
    """Check bytes and places of the snapshots of recurrent layers."""
    for tier in snapshots._tiers:
        sizes = [size for _, size in tier.kept.values()]
        assert tier.used_bytes == sum(sizes) <= tier.budget_bytes, f"{tier.used_bytes} bytes in {tier.name}"
        check_storage(tier.storage, [stored for stored, _ in tier.kept.values()])
        for page, position in tier.kept:
            assert page.copies, f"a snapshot at {position} is kept of {page}, which is gone"
            assert page.start < position <= page.stop, f"a snapshot at {position} is kept in {page}"


def check_tree(tree: PageTree) -> None:
    """Check pages, their order, parents and tiers."""
    for parent in (tree.root, *tree.pages()):
        in_order = sorted(parent.children, key=lambda child: child.token_ids)
        assert parent.children == in_order, f"the children of {parent} are not in the order of their token ids"
        for page in parent.children:
            _check_page(page, parent)


def _check_page(page: Page, parent: Page) -> None:
    assert page.parent is parent, f"{page} is a child of {parent}, which is not its parent"
    assert page.digest == prefix_digest(parent.digest, pack(page.token_ids)), f"{page} has another's digest"
    assert 0 < len(page) <= PAGE_TOKENS, f"{page} has {len(page)} tokens"
    assert parent.is_root or len(parent) == PAGE_TOKENS, f"{page} is below {parent}, which is not full"
    assert (page.start, page.stop) == (parent.stop, parent.stop + len(page)), f"{page} is not after {parent}"
    assert page.copies, f"{page} is in no tier"
    assert parent.level <= page.level, f"{page} is in a higher tier than {parent}"


def check_counts(tree: PageTree, pinned: Collection[SessionKey], live: Collection[PageMatch]) -> None:
    """Check sessions, pins and references."""
    refs = Counter(page for match in live for page in match.pages)
    pins = Counter(page for session in pinned for page in tree.last_path(session))
    resident = set(tree.pages())
    for page in resident:
        assert page.refs == refs[page], f"{page} is used by {refs[page]} live matches"
        assert page.pins == pins[page], f"{page} is on the paths of {pins[page]} pinned sessions"
        for document, used in page.owners.items():
            assert 0 < used <= len(page), f"{page} has {used} tokens used by {document}"
            assert page in tree.owned_by(document), f"{page}: its owners are not those that the tree finds"
        assert len(page.owners) <= REMEMBERED_OWNERS, f"{page} names {len(page.owners)} owners"
        assert page.is_owned, f"{page} has no owner that used all of it"
    for session, tail in tree.tails.items():
        assert tail in resident, f"the last path of {session} ends at {tail}, which is gone"


def check_tiers(tree: PageTree, residency: Residency) -> None:
    """Check bytes, budgets, the order of eviction, and the contents of the storages."""
    resident = list(tree.pages())
    if residency.tiers[-1].storage.durable:
        unsaved = {page for page in resident if residency.last not in page.copies}
        assert residency.unsaved == unsaved, f"{unsaved ^ residency.unsaved} are saved, or are not"
    for level, tier in enumerate(residency.tiers):
        pages = [page for page in resident if level in page.copies]
        sizes = {page: residency.page_bytes(len(page), level) for page in pages}
        assert {**tier.held, **tier.evictable} == sizes, f"the {tier.name} tier counts other pages than it has"
        assert not tier.held.keys() & tier.evictable.keys(), f"the {tier.name} tier counts pages twice"
        assert tier.used_bytes == sum(sizes.values()), f"the {tier.name} tier counts {tier.used_bytes} bytes"
        assert tier.evictable_bytes == sum(tier.evictable.values()), f"the {tier.name} tier's evictable bytes are wrong"
        assert tier.tokens == sum(map(len, pages)), f"the {tier.name} tier counts {tier.tokens} tokens"
        assert tier.used_bytes <= tier.budget_bytes, f"the {tier.name} tier is over its budget"
        _check_order(tier)
        check_storage(tier.storage, [page.copies[level] for page in pages])


def _check_order(tier: Tier) -> None:
    seen: set[Page] = set()
    for page in tier.evictable:
        assert not page.held, f"{page} is held, but may be evicted from the {tier.name} tier"
        ancestor = page.parent
        while ancestor.parent is not ancestor:
            assert ancestor not in seen, f"{ancestor} would leave the {tier.name} tier before {page}, which is below it"
            assert ancestor.used >= page.used or ancestor.held, f"{ancestor} was used before {page}, which is below it"
            ancestor = ancestor.parent
        seen.add(page)
    for page in tier.held:
        assert page.held, f"{page} is not held, but cannot be evicted from the {tier.name} tier"
