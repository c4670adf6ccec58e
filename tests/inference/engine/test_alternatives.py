"""Other beginnings: of any text, and of text that begins with typed bytes."""

from __future__ import annotations

from inference.engine.alternatives import Branches
from inference.text.healing import Healer
from inference.text.tokenization import TextTokenizer


def test_the_first_token_is_another_and_the_rest_is_free(tiny_tokenizer: TextTokenizer) -> None:
    (taken,) = tiny_tokenizer.encode("a")
    typed = Branches(tiny_tokenizer, None).other_than((taken,), b"")
    allowed = typed.allowed()
    assert allowed is not None
    assert typed.possible
    assert taken not in allowed
    assert not set(tiny_tokenizer.markers.end) & set(allowed.tolist())
    typed.take(int(allowed[0]))
    assert typed.allowed() is None


def test_typed_bytes_are_spelled_all_the_same(tiny_tokenizer: TextTokenizer) -> None:
    healer = Healer(tiny_tokenizer)
    branches = Branches(tiny_tokenizer, healer)
    allowed = healer.vocabulary.allowed(b"re").tolist()
    assert len(allowed) > 1
    left = branches.other_than((allowed[0],), b"re").allowed()
    assert left is not None
    assert left.tolist() == allowed[1:]
    assert not branches.other_than(tuple(allowed), b"re").possible
