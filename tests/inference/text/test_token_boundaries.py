from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference.text.fim import FORMATS
from inference.text.token_boundaries import PROBES, MergePairs, SortedVocabulary, StablePieces
from inference.text.tokenization import TextTokenizer, read_tokenizer
from tests.inference.byte_fallback import write_fallback_tokenizer
from tests.inference.text.test_tokenization import PIECES

CHARACTERS = [*PIECES, "a", "b", "X", "_", "1", ".", ",", "=", "==", "'l", "'r", "/", "self", " value", "\n    "]
TEXTS = st.lists(st.sampled_from(CHARACTERS), max_size=12).map("".join)


def check(tokenizer: TextTokenizer, text: str, continuation: str) -> None:
    token_ids, stable = tokenizer.encode_stable(text)
    assert token_ids == tokenizer.encode(text)
    assert tokenizer.encode(text + continuation)[:stable] == token_ids[:stable]


def test_stable_tokens_of_real_vocabularies_stay(real_tokenizer: TextTokenizer) -> None:
    rng = random.Random(11)
    for _ in range(400):
        text = "".join(rng.choices(CHARACTERS, k=rng.randint(1, 12)))
        for _ in range(3):
            check(real_tokenizer, text, "".join(rng.choices(CHARACTERS, k=rng.randint(1, 4))))


@given(text=TEXTS, continuation=TEXTS)
def test_stable_tokens_of_ours_stay(tiny_tokenizer: TextTokenizer, text: str, continuation: str) -> None:
    check(tiny_tokenizer, text, continuation)


@pytest.fixture(
    scope="module", params=[("llama", FORMATS["codellama"]), ("gemma", FORMATS["codegemma"]), ("metaspace", FORMATS["codestral"])]
)
def fallback_tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    form, fim = request.param
    path = tmp_path_factory.mktemp(form) / "tokenizer.json"
    write_fallback_tokenizer(path, form, fim.required_tokens)
    return read_tokenizer(path)


@given(text=TEXTS, continuation=TEXTS)
def test_stable_tokens_with_byte_fallback_stay(fallback_tokenizer: TextTokenizer, text: str, continuation: str) -> None:
    check(fallback_tokenizer, text, continuation)


@pytest.mark.parametrize(
    ("text", "unstable"),
    [
        ("def main(self, value", " value"),
        ("x = f(a) ", " "),
        ("x = 12", ""),  # each digit is a token
        ("if x:\n        ", "        "),
        ("it's", ""),  # a contraction is a piece, whatever follows
        ("it'", "'"),
        ("", ""),
    ],
)
def test_the_end_of_the_last_word_is_not_stable(tiny_tokenizer: TextTokenizer, text: str, unstable: str) -> None:
    token_ids, stable = tiny_tokenizer.encode_stable(text)
    rest = b"".join(map(tiny_tokenizer.text_tokens().__getitem__, token_ids[stable:]))
    assert rest.decode() == unstable


def test_words_before_the_last_are_stable_with_byte_fallback(fallback_tokenizer: TextTokenizer) -> None:
    text = "return self item"
    spelled = fallback_tokenizer.text_tokens()
    token_ids, stable = fallback_tokenizer.encode_stable(text)
    assert b"".join(map(spelled.__getitem__, token_ids[:stable])) == b"return self"


def test_places_that_no_token_bridges() -> None:
    merge_pairs = MergePairs(["▁a", "ab", "▁▁", "x"])
    assert merge_pairs.stable("ab▁ab", [2, 1, 2]) == 2
    assert merge_pairs.stable("a▁▁a", [1, 1, 1, 1]) == 1
    assert merge_pairs.stable("ax", [1, 1]) == 1
    assert merge_pairs.stable("éx", [1, 1, 1]) == 2  # never within a character
    assert merge_pairs.stable("a", [1]) == 0


def test_the_remembered_pairs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.text.token_boundaries._MOST_PAIRS", 3)
    merge_pairs = MergePairs(["ab"])
    merge_pairs.stable("abcdefgh", [1] * 8)
    assert merge_pairs._is_within_a_token.cache_info().currsize == 3


def test_a_continuation_that_moves_an_earlier_boundary_unsettles_it() -> None:
    def pieces_of(text: str) -> list[str]:
        return [text] if text.endswith("aa") else list(text)

    assert StablePieces(pieces_of).stable("ba") == 0
    assert StablePieces(pieces_of).stable("b" * 20) == 20


def test_a_word_of_a_known_shape_is_not_tried_again(real_tokenizer: TextTokenizer) -> None:
    asked: list[str] = []

    def pieces_of(text: str) -> list[str]:
        asked.append(text)
        return real_tokenizer._pre_tokens(text)

    pieces = StablePieces(pieces_of)
    pieces.stable("x = first")
    assert len(asked) > len(PROBES)
    asked.clear()
    assert pieces.stable("y = second") == StablePieces(real_tokenizer._pre_tokens).stable("y = second")
    assert len(asked) == 2  # the text, and its end alone


def test_letters_behind_an_apostrophe_are_tried_each() -> None:
    def pieces_of(text: str) -> list[str]:
        return re.findall(r"'re|[a-z]+|[^a-z]", text)

    pieces = StablePieces(pieces_of)
    assert pieces.stable("we'r") == 2  # it may become 're
    assert pieces.stable("we'x") == 3


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
