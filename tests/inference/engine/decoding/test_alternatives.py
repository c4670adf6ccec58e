"""Other beginnings: of any text, and of text that begins with typed bytes."""

from __future__ import annotations

from inference.engine.decoding.alternatives import AlternativeStart
from inference.text.healing import Healer
from inference.text.tokenization import TextTokenizer


def test_the_first_token_is_another_and_the_rest_is_free(tiny_tokenizer: TextTokenizer) -> None:
    (taken,) = tiny_tokenizer.encode("a")
    typed = AlternativeStart(b"", None, tiny_tokenizer, (taken,))
    allowed = typed.allowed()
    assert allowed is not None
    assert typed.possible
    assert taken not in allowed
    assert not set(tiny_tokenizer.markers.end) & set(allowed.tolist())
    typed.take(int(allowed[0]))
    assert typed.allowed() is None


def test_the_first_token_behind_typed_bytes_is_another(tiny_tokenizer: TextTokenizer) -> None:
    """However the typed bytes are spelled: a text that only spells them in other tokens would be the same text."""
    healer = Healer(tiny_tokenizer)
    longest = max(
        tiny_tokenizer.encode("def returned(value): return value"),
        key=lambda token_id: len(healer.vocabulary.bytes_of(token_id)),
    )
    typed = healer.vocabulary.bytes_of(longest)[:2]
    (letter,) = tiny_tokenizer.encode(chr(typed[0]))
    allowed = healer.vocabulary.allowed(typed).tolist()
    beyond = [token_id for token_id in allowed if len(healer.vocabulary.bytes_of(token_id)) > len(typed)]
    assert letter in allowed
    assert beyond
    other = AlternativeStart(typed, healer, tiny_tokenizer, (letter, beyond[0]))
    left = other.allowed()
    assert left is not None
    assert left.tolist() == [token_id for token_id in allowed if token_id != beyond[0]]
    for spelled in typed:
        assert other.take(*tiny_tokenizer.encode(chr(spelled)))
    left = other.allowed()
    assert left is not None
    assert not {letter, beyond[0]} & set(left.tolist())
    assert other.first is None
    other.take(int(left[0]))
    assert (other.first, other.allowed()) == (int(left[0]), None)


def test_where_the_first_text_is_empty_the_other_is_any(tiny_tokenizer: TextTokenizer) -> None:
    """Its first token behind the typed bytes is an end, which spells nothing."""
    healer = Healer(tiny_tokenizer)
    other = AlternativeStart(b"re", healer, tiny_tokenizer, tuple(tiny_tokenizer.markers.end))
    left = other.allowed()
    assert left is not None
    assert left.tolist() == healer.vocabulary.allowed(b"re").tolist()
