from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inference.text.healing_vocabulary import SortedVocabulary

SPELLED = st.lists(st.binary(max_size=4), max_size=40)
LETTERS = st.lists(st.text(alphabet="ab\xff", max_size=4).map(lambda text: text.encode("latin-1")), max_size=40)


@given(spelled=SPELLED | LETTERS, typed=st.binary(min_size=1, max_size=6) | st.text("ab", min_size=1).map(str.encode))
def test_exactly_the_tokens_that_agree_are_allowed(spelled: list[bytes], typed: bytes) -> None:
    vocabulary = SortedVocabulary(dict(enumerate(spelled)))
    allowed = vocabulary.allowed(typed).tolist()
    agree = {id_ for id_, token in enumerate(spelled) if token and (token.startswith(typed) or typed.startswith(token))}
    assert allowed == sorted(agree)


def test_allowed_tokens_come_by_their_ids() -> None:
    vocabulary = SortedVocabulary(dict(enumerate([b"f", b"fo", b"foo", b"foobar", b"g", b"\xff"])))
    assert vocabulary.allowed(b"foo").tolist() == [0, 1, 2, 3]
    assert vocabulary.allowed(b"foot").tolist() == [0, 1, 2]
    assert vocabulary.allowed(b"\xff").tolist() == [5]
    assert vocabulary.bytes_of(3) == b"foobar"


def test_parts_of_a_utf8_sequence() -> None:
    letter = "é".encode()
    vocabulary = SortedVocabulary(dict(enumerate([letter[:1], letter[1:], letter, b"caf", b"caf" + letter[:1]])))
    assert vocabulary.allowed("café".encode()).tolist() == [3, 4]
    assert vocabulary.allowed(letter[1:]).tolist() == [1]
