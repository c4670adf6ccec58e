from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference.text.token_ids import BYTES_PER_ID, packed, place_of_last

few_ids = st.lists(st.sampled_from([0, 1, 0x0100, 0x010000, 0x0101]), max_size=12)  # whose bytes overlap


def test_an_id_has_32_bits() -> None:
    assert len(packed([2**31 - 1]).tobytes()) == BYTES_PER_ID


@given(few_ids, few_ids, few_ids.filter(bool))
def test_the_last_place_of_a_run_is_between_whole_ids(before: list[int], behind: list[int], run: list[int]) -> None:
    ids = before + run + behind
    places = [place for place in range(len(ids) - len(run)) if ids[place : place + len(run)] == run]
    assert place_of_last(packed(run), packed(ids)) == max(places, default=-1)
