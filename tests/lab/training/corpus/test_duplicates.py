from __future__ import annotations

from random import Random

from midfill_lab.training.corpus.duplicates import DuplicateFilter
from tests.lab.packages import write_module

MODULE, OTHER = write_module(Random(1), 20), write_module(Random(2), 20)


def filter_with(*texts: str) -> DuplicateFilter:
    duplicates = DuplicateFilter()
    for text in texts:
        duplicates.add(text)
    return duplicates


def test_the_same_content_is_a_duplicate_whatever_its_trailing_spaces() -> None:
    assert filter_with(MODULE).reason_to_drop(MODULE.replace("\n", "  \n")) == "duplicate"


def test_another_version_is_a_near_duplicate() -> None:
    assert filter_with(MODULE).reason_to_drop(MODULE + "\n\nVERSION = 2\n") == "near duplicate"


def test_a_file_copied_together_from_two_is_a_near_duplicate() -> None:
    assert filter_with(MODULE, OTHER).reason_to_drop(MODULE + OTHER) == "near duplicate"


def test_new_text_is_kept_also_beside_a_little_that_is_known() -> None:
    new = write_module(Random(3), 20)
    assert filter_with(MODULE, OTHER).reason_to_drop(new + "\n".join(MODULE.splitlines()[:10])) is None
