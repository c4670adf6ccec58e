from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference.text.token_ids import BYTES_PER_ID, TextStream, bytes_of_piece, bytes_of_token, packed, place_of_last

BYTES = [bytes([value]) for value in range(256)]


def test_alphabet_is_that_of_gpt2() -> None:
    assert bytes_of_token("Ġdef") == b" def"
    assert bytes_of_token("Ċ") == b"\n"
    assert bytes_of_token("Ã©") == "é".encode()
    assert bytes_of_token("▁x") is None


def test_pieces_of_a_bpe_with_byte_fallback() -> None:
    assert bytes_of_piece("▁def") == b" def"
    assert bytes_of_piece("▁▁") == b"  "
    assert bytes_of_piece("<0x0A>") == b"\n"
    assert bytes_of_piece("<0xZZ>") == b"<0xZZ>"
    assert bytes_of_piece("é") == "é".encode()


TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


@given(TEXT, TEXT)
def test_skipped_bytes_are_left_out(skipped: str, text: str) -> None:
    stream = TextStream(BYTES.__getitem__, skip=len(skipped.encode()))
    assert all(map(stream.push, (skipped + text).encode()))
    assert stream.text == text


def test_a_token_may_reach_beyond_what_is_skipped() -> None:
    stream = TextStream([b"fo", b"ob", b"ar"].__getitem__, skip=3)
    assert [stream.push(token_id) for token_id in range(3)] == [True] * 3
    assert stream.text == "bar"


@given(TEXT)
def test_characters_appear_when_their_last_byte_comes(text: str) -> None:
    stream = TextStream(BYTES.__getitem__)
    encoded = text.encode()
    for count, value in enumerate(encoded, start=1):
        assert stream.push(value)
        assert stream.text == encoded[:count].decode(errors="ignore")
    assert stream.text == text


def test_bytes_that_are_no_text_end_the_stream() -> None:
    stream = TextStream(BYTES.__getitem__)
    assert stream.push(ord("a"))
    assert stream.push(0xC3)
    assert not stream.push(ord("b"))
    assert stream.text == "a"


few_ids = st.lists(st.sampled_from([0, 1, 0x0100, 0x010000, 0x0101]), max_size=12)  # whose bytes overlap


def test_an_id_has_32_bits() -> None:
    assert len(packed([2**31 - 1]).tobytes()) == BYTES_PER_ID


@given(few_ids, few_ids, few_ids.filter(bool))
def test_the_last_place_of_a_run_is_between_whole_ids(before: list[int], behind: list[int], run: list[int]) -> None:
    ids = before + run + behind
    places = [place for place in range(len(ids) - len(run)) if ids[place : place + len(run)] == run]
    assert place_of_last(packed(run), packed(ids)) == max(places, default=-1)
