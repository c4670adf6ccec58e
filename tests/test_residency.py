"""The page on residency names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "residency.md").read_text(encoding="utf-8")


def named_tests() -> list[tuple[str, str]]:
    """File and function of every `tests/...py::test_...`; `::test_...` alone is of the file named before it."""
    found, file = [], ""
    for path, name in re.findall(r"`(tests/[\w/]+\.py)?::(test_\w+)`", PAGE):
        file = path or file
        found.append((file, name))
    return found


@pytest.mark.parametrize(("file", "name"), named_tests())
def test_a_named_test_exists(file: str, name: str) -> None:
    assert re.search(rf"def {name}\(", (ROOT / file).read_text(encoding="utf-8"))


def test_all_of_the_page_is_looked_at() -> None:
    assert len(named_tests()) == PAGE.count("::test_")
