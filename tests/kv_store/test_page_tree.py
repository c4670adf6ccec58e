import random
from array import array
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kv_store import page_tree
from kv_store.page_tree import COMPARED_AT_ONCE, REMEMBERED_OWNERS, REMEMBERED_TAILS, Page, PageTree, common_prefix_length

FULL = tuple(range(16))


def grow(tree: PageTree, *pages: tuple[int, ...]) -> list[Page]:
    path, parent = [], tree.root
    for token_ids in pages:
        parent = tree.add(parent, token_ids)
        parent.copies[0] = None
        path.append(parent)
    return path


def dropped(tree: PageTree, document: str) -> list[Page]:
    pages = []
    for page in tree.disown(document):
        tree.remove(page)
        pages.append(page)
    return pages


def test_a_removed_tail_is_no_sessions_tail_any_more() -> None:
    tree = PageTree()
    first, last = grow(tree, FULL, (16,))
    tree.record_last_prefix("a", [first, last], 17)
    tree.remove(last)
    assert tree.last_path("a") == [first]
    tree.remove(first)
    assert tree.last_path("a") == []
    assert not tree.tails


def test_what_other_documents_used_in_full_survives() -> None:
    tree = PageTree()
    first, last = grow(tree, FULL, (16, 17, 18))
    tree.record_last_prefix("a", [first, last], 19)
    tree.record_last_prefix("b", [first, last], 17)
    assert dropped(tree, "a") == [last], "b used one token of it, the others are a's alone"
    assert dropped(tree, "b") == [first], "b used all of what came before"
    assert not tree.documents()


def test_a_sibling_takes_over_uses_and_pins() -> None:
    tree = PageTree()
    (short,) = grow(tree, (1, 2))
    tree.record_last_prefix("a", [short], 2)
    short.pins = 1
    (long,) = grow(tree, (1, 2, 3))
    tree.supersede(short, long)
    tree.remove(short)
    assert tree.last_path("a") == [long]
    assert (long.pins, long.owners) == (1, {"a": 2})


def test_the_index_among_many_siblings_finds_what_a_search_of_all_finds() -> None:
    choose = random.Random(0)
    tree = PageTree()
    kept = {tuple(choose.choices(range(3), k=choose.randint(1, 16))) for _ in range(500)}
    for token_ids in kept:
        tree.add(tree.root, token_ids)
    for _ in range(500):
        wanted = tuple(choose.choices(range(3), k=choose.randint(0, 16)))
        (*_, page), length = tree.find_prefix(wanted) if wanted else ([None], 0)
        assert length == max((common_prefix_length(token_ids, wanted) for token_ids in kept), default=0)
        assert page is None or common_prefix_length(page.token_ids, wanted) == length


def test_a_look_up_compares_few_of_many_siblings(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = PageTree()
    for first in range(6000):
        tree.add(tree.root, (1, first, *range(14)))
    compared: list[object] = []
    count = page_tree.common_prefix_length
    monkeypatch.setattr(page_tree, "common_prefix_length", lambda *both: compared.append(both) or count(*both))
    assert tree.find_prefix((1, 3000, 7))[1] == 2
    assert len(compared) <= 2


def test_what_a_page_remembers_does_not_grow_with_every_client_of_its_document() -> None:
    tree = PageTree()
    path = grow(tree, FULL)
    for run in range(10 * REMEMBERED_TAILS):
        tree.record_last_prefix(f"run {run}/file.py", path, 16)
        tree.forget_old_tails({"run 0/file.py"})
    assert path[0].owners == {"file.py": 16}
    assert len(tree.tails) <= REMEMBERED_TAILS + 1
    assert tree.last_path("run 0/file.py") == path, "it is pinned"


@pytest.mark.parametrize("count", [16, 5])
def test_a_page_names_few_of_many_documents_and_goes_when_none_of_those_is_left(count: int) -> None:
    tree = PageTree()
    first, last = grow(tree, FULL, FULL)
    tree.record_last_prefix("run/whole.py", [first, last], 32)
    for number in range(5000):
        tree.record_last_prefix(f"run/{number}.py", [first, last], 16 + count)
    assert not first.owners, "what its last page names used it, too"
    assert len(last.owners) == REMEMBERED_OWNERS
    assert "4999.py" in last.owners
    assert ("whole.py" in last.owners) == (count < 16), "no other used all of it"
    named = list(last.owners)
    assert not dropped(tree, "0.py"), "its text is others', too"
    assert [page for document in named[:-1] for page in dropped(tree, document)] == [last] * (count < 16)
    assert dropped(tree, named[-1]) == [last, first][count < 16 :]


@given(
    first=st.lists(st.integers(0, 2), max_size=3 * COMPARED_AT_ONCE),
    change=st.integers(0, 3 * COMPARED_AT_ONCE),
    cut=st.integers(0, 3 * COMPARED_AT_ONCE),
)
def test_common_prefix_length(first: list[int], change: int, cut: int) -> None:
    second = first[:cut]
    second = second[:change] + [3 for _ in second[change : change + 1]] + second[change + 1 :]
    expected = min(change, len(second))
    for sequence in (tuple, partial(array, "i")):
        assert common_prefix_length(sequence(first), sequence(second)) == expected
