"""Checks the accounting of a store: an AssertionError names the page, tier or session that is inconsistent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from kv_store.interface import document_of
from kv_store.page_tree import PAGE_TOKENS, Page, PageTree, pack, prefix_digest
from kv_store.paged.match import PageMatch
from kv_store.paged.residency import Residency
from kv_store.tiers.tier import Tier


def check_tree(tree: PageTree) -> None:
    """Check pages, their order, parents and tiers."""
    for parent in (*tree.roots.values(), *tree.pages()):
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


def check_counts(tree: PageTree, pinned: Collection[str], live: Collection[PageMatch]) -> None:
    """Check sessions, pins and references."""
    refs = Counter(page for match in live for page in match.pages)
    pins = Counter(page for session in pinned for page in tree.last_path(session))
    resident = set(tree.pages())
    for page in resident:
        assert page.refs == refs[page], f"{page} is used by {refs[page]} live matches"
        assert page.pins == pins[page], f"{page} is on the paths of {pins[page]} pinned sessions"
        assert page.uses, f"{page} is used by no document"
        for document, used in page.uses.items():
            assert 0 < used <= len(page), f"{page} has {used} tokens used by {document}"
            parent = page.parent
            full = parent.is_root or parent.uses.get(document) == len(parent)
            assert full, f"{page} is used by {document}, but {parent} is not, or not whole"
    for session, tail in tree.tails.items():
        assert tail in resident, f"the last path of {session} ends at {tail}, which is gone"
        assert document_of(session) in tail.uses, f"the last path of {session} ends at {tail}, which is not used by it"


def check_tiers(tree: PageTree, residency: Residency) -> None:
    """Check bytes, budgets, the order of eviction, and the contents of the storages."""
    resident = list(tree.pages())
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
        tier.storage.check([page.copies[level] for page in pages])


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
