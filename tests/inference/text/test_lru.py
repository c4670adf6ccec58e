from __future__ import annotations

from inference.text.tokenization import LRUCache


def test_oldest_goes_when_there_are_too_many() -> None:
    cache: LRUCache[str, int] = LRUCache(max_entries=2, max_bytes=100)
    cache.put("a", 1, 10)
    cache.put("b", 2, 10)
    assert cache.get("a") == 1
    cache.put("c", 3, 10)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)
    assert (len(cache), cache.used_bytes) == (2, 20)


def test_oldest_go_until_bytes_fit() -> None:
    cache: LRUCache[str, int] = LRUCache(max_entries=10, max_bytes=30)
    for number, key in enumerate("abc"):
        cache.put(key, number, 10)
    cache.put("d", 3, 25)
    assert [cache.get(key) for key in "abcd"] == [None, None, None, 3]
    assert cache.used_bytes == 25


def test_replaced_value_is_counted_once() -> None:
    cache: LRUCache[str, int] = LRUCache(max_entries=10, max_bytes=30)
    cache.put("a", 1, 10)
    cache.put("a", 2, 20)
    assert (cache.get("a"), cache.used_bytes, len(cache)) == (2, 20, 1)


def test_value_larger_than_the_budget_is_not_kept_and_costs_nobody_else() -> None:
    cache: LRUCache[str, int] = LRUCache(max_entries=10, max_bytes=30)
    cache.put("a", 1, 10)
    cache.put("huge", 2, 31)
    assert (cache.get("huge"), cache.get("a")) == (None, 1)


def test_removed_value_makes_room() -> None:
    cache: LRUCache[str, int] = LRUCache(max_entries=10, max_bytes=30)
    cache.put("a", 1, 30)
    cache.remove("a")
    cache.remove("unknown")
    assert (cache.get("a"), cache.used_bytes, len(cache)) == (None, 0, 0)
