"""Where other texts leave a completion, and in which order."""

from __future__ import annotations

import pytest

from inference.backends.model import Choice
from inference.engine.search import Branch, branches

SPELLED = dict(enumerate([b"re", b"turn", b"turned", b" x", b"\n", b"return", b"set", b"r", "é".encode()], start=1))
END = 99
IDS = {spelled: token_id for token_id, spelled in SPELLED.items()}


def chose(spelled: bytes | None, logprob: float, **others: float) -> Choice:
    """A choice among others, by their texts; `END` is the end."""
    top = [(END if text == "END" else IDS[text.encode()], value) for text, value in others.items()]
    token_id = END if spelled is None else IDS[spelled]
    return Choice(token_id, logprob, ((token_id, logprob), *top))


def found(chosen: list[Choice], typed: bytes, text: str) -> list[tuple[int, bytes | None]]:
    several = sorted(branches(chosen, typed, text, SPELLED.get), key=lambda branch: -branch.logprob)
    return [(len(branch.kept), SPELLED.get(branch.choice.token_id)) for branch in several]


def test_a_beginning_has_the_probability_of_all_its_tokens() -> None:
    chosen = [chose(b"re", -0.1, set=-3.0), chose(b"turn", -0.2, turned=-1.0, set=-2.5), chose(b"\n", -0.5, set=-0.9)]
    first, second = chosen[:2]
    assert branches(chosen, b"", "return", SPELLED.get) == [
        Branch((), Choice(IDS[b"set"], -3.0), -3.0),
        Branch((first,), Choice(IDS[b"turned"], -1.0), -1.1),
        Branch((first,), Choice(IDS[b"set"], -2.5), -2.6),
        Branch((first, second), Choice(IDS[b"set"], -0.9), pytest.approx(-1.2)),
    ]
    assert found(chosen, b"", "return") == [(1, b"turned"), (2, b"set"), (1, b"set"), (0, b"set")]


def test_no_branch_spells_typed_bytes_in_other_tokens() -> None:
    chosen = [chose(b"re", -0.1, r=-0.5, set=-0.6), chose(b"turn", -0.2, turned=-1.0), chose(b"\n", -0.1)]
    assert found(chosen, b"re", "turn") == [(1, b"turned")]
    chosen = [chose(b"return", -0.1, re=-0.2, r=-0.3), chose(b"\n", -0.1)]
    assert found(chosen, b"re", "turn") == []
    assert found(chosen, b"r", "eturn") == [(0, b"re")]


def test_a_text_branches_at_its_end_but_not_beyond_it() -> None:
    chosen = [chose(b"re", -0.1), chose(b"\n", -0.1, turn=-2.0), chose(b" x", -0.1, set=-0.2)]
    assert found(chosen, b"", "re") == [(1, b"turn")]
    assert found(chosen, b"", "re\n") == [(2, b"set"), (1, b"turn")]


@pytest.mark.parametrize(("text", "expected"), [("", []), ("re", [(1, None)])])
def test_a_text_can_end_earlier_but_not_be_empty(text: str, expected: list[tuple[int, bytes | None]]) -> None:
    chosen = [chose(b"re", -0.1, END=-0.2), chose(b"turn", -0.1, END=-0.3)]
    assert found(chosen if text else chosen[:1], b"", text and "returns") == expected


def test_the_end_of_an_empty_text_has_others_in_its_place() -> None:
    assert found([chose(None, -0.1, set=-0.2)], b"", "") == [(0, b"set")]
    assert found([chose(b"re", -0.1), chose(None, -0.1, set=-0.2)], b"re", "") == [(1, b"set")]


def test_bytes_count_not_characters() -> None:
    chosen = [chose("é".encode(), -0.1), chose(b"\n", -0.1, set=-0.2), chose(b" x", -0.1, set=-0.3)]
    assert found(chosen, b"", "é") == [(1, b"set")]
