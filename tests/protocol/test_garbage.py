"""Garbage stays while nobody rests, and goes when somebody does."""

from __future__ import annotations

import gc
import platform
import weakref
from collections.abc import Iterator

import psutil
import pytest

from protocol import garbage


class Knot:
    """Refers to itself, so that only the collector can tell that nobody else does."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def _as_python_does_afterwards() -> Iterator[None]:
    yield
    garbage.collect_all()


def type_for_a_while() -> list[list[int]]:
    """More new objects than Python's own limits let pass."""
    return [[number] for number in range(20_000)]


def test_what_is_new_is_collected_at_a_rest_alone() -> None:
    garbage.keep_what_is_loaded()
    knot = weakref.ref(Knot())
    new = type_for_a_while()
    assert knot() is not None
    garbage.collect_what_is_new()
    assert knot() is None
    assert len(new) == 20_000


def test_what_outlives_a_rest_is_collected_at_a_later_one() -> None:
    garbage.keep_what_is_loaded()
    knot = Knot()
    outlived = weakref.ref(knot)
    garbage.collect_what_is_new()
    del knot
    garbage.collect_what_is_new()
    assert outlived() is not None
    for _ in range(12):
        garbage.collect_what_is_new()
    assert outlived() is None


def test_without_any_rest_it_is_collected_in_the_end() -> None:
    garbage.keep_what_is_loaded()
    knot = weakref.ref(Knot())
    kept = [type_for_a_while() for _ in range(4)]
    assert knot() is None
    assert len(kept) == 4


def test_what_is_loaded_is_not_looked_at_until_all_is_collected() -> None:
    knot = Knot()
    loaded = weakref.ref(knot)
    garbage.keep_what_is_loaded()
    del knot
    gc.collect()
    assert loaded() is not None
    before = gc.get_threshold()
    garbage.collect_all()
    assert loaded() is None
    assert gc.get_threshold() != before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries return memory on their own")
def test_freed_memory_is_returned_though_what_was_allocated_last_stays() -> None:
    resident = psutil.Process().memory_info
    buffers = [bytes(4000) for _ in range(25_000)]
    full = resident().rss
    last = buffers[-1]
    del buffers
    garbage.return_free_memory()
    assert len(last) == 4000
    assert full - resident().rss > 80 * 10**6
