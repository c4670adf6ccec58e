from kv_store.page_tree import Page, PageTree, common_prefix_length

FULL = tuple(range(16))


def grow(tree: PageTree, *pages: tuple[int, ...]) -> list[Page]:
    path, parent = [], tree.root
    for token_ids in pages:
        parent = tree.add(parent, token_ids)
        parent.copies[0] = None
        path.append(parent)
    return path


def test_the_last_page_may_match_in_part() -> None:
    tree = PageTree()
    path = grow(tree, FULL, (16, 17, 18))
    assert tree.find_prefix((*FULL, 16, 17)) == (path, 18)
    assert tree.find_prefix((*FULL, 16, 99)) == (path, 17)
    assert tree.find_prefix((*FULL, 99)) == (path[:1], 16)
    assert tree.find_prefix(FULL[:5]) == (path[:1], 5)
    assert tree.find_prefix((99,)) == ([], 0)
    assert tree.find_prefix(()) == ([], 0)


def test_of_siblings_that_begin_alike_the_closest_matches() -> None:
    tree = PageTree()
    grow(tree, (1, 2, 3))
    closest = grow(tree, (1, 2, 4, 5))
    grow(tree, (1, 2))
    assert tree.find_prefix((1, 2, 4, 6)) == (closest, 3)


def test_a_short_page_matches_whole_though_more_is_asked() -> None:
    tree = PageTree()
    path = grow(tree, (1, 2, 3))
    assert tree.find_prefix((1, 2, 3, 4)) == (path, 3)


def test_a_removed_tail_is_no_owners_tail_any_more() -> None:
    tree = PageTree()
    first, last = grow(tree, FULL, (16,))
    tree.own("a", [first, last], 17)
    tree.remove(last)
    assert tree.last_path("a") == [first]
    tree.remove(first)
    assert tree.last_path("a") == []
    assert not tree.tails


def test_what_others_used_in_full_survives_the_owner() -> None:
    tree = PageTree()
    first, last = grow(tree, FULL, (16, 17, 18))
    tree.own("a", [first, last], 19)
    tree.own("b", [first, last], 17)
    assert tree.disown("a") == [last], "b used one token of it, the others are a's alone"
    assert tree.disown("b") == [first, last]


def test_a_sibling_takes_over_owners_and_pins() -> None:
    tree = PageTree()
    (short,) = grow(tree, (1, 2))
    tree.own("a", [short], 2)
    short.pins = 1
    (long,) = grow(tree, (1, 2, 3))
    tree.supersede(short, long)
    tree.remove(short)
    assert tree.last_path("a") == [long]
    assert (long.pins, long.owners) == (1, {"a": 2})


def test_common_prefix_length() -> None:
    assert common_prefix_length((), (1,)) == 0
    assert common_prefix_length((1, 2, 3), (1, 2)) == 2
    assert common_prefix_length((1, 2, 3), (1, 5, 3)) == 1
