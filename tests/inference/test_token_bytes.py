from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference.token_bytes import TextStream, bytes_of_token

BYTES = [bytes([value]) for value in range(256)]


def test_alphabet_is_that_of_gpt2() -> None:
    assert bytes_of_token("Ġdef") == b" def"
    assert bytes_of_token("Ċ") == b"\n"
    assert bytes_of_token("Ã©") == "é".encode()
    assert bytes_of_token("▁x") is None


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
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
