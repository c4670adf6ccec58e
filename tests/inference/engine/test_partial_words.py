from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from inference.engine import partial_words
from inference.engine.partial_words import BYTES_PER_SESSION, MOST_PROMPTS, PartialWordCache
from inference.engine.request import Request
from inference.text.prompts import TokenizedPrompt
from inference.text.token_boundaries import SortedVocabulary
from inference.text.token_ids import BYTES_PER_ID, packed
from protocol.messages import CompletionRequest, Prompt, Sampling

SPELLED = {number: spelled.encode() for number, spelled in enumerate([*"abé", "ab", "ba", "aba", "éa", "abab"])}
SPELLED |= {20: b"\xc3", 21: b"\xa9"}  # the halves of é
REQUEST = CompletionRequest("client/document", Prompt("", ""), max_tokens=4)
ASKED = Request(REQUEST)


def prompt(typed: str, token_ids: list[int] | None = None) -> TokenizedPrompt:
    return TokenizedPrompt(packed(token_ids or [7, 7]), 0, 1, 0, 1, typed.encode())


def decode(start: TokenizedPrompt, seed: int, count: int) -> list[int]:
    """Greedy decoding by a model whose logits are a hash of the tokens so far."""
    vocabulary, rest, chosen = SortedVocabulary(SPELLED), start.typed, list[int]()
    for _ in range(count):
        so_far = (*start.token_ids, *chosen)
        allowed = vocabulary.allowed(rest).tolist() if rest else list(SPELLED)
        chosen.append(max(allowed, key=lambda token: (hash((seed, so_far, token)), token)))
        rest = rest[len(SPELLED[chosen[-1]]) :]
    return chosen


@given(st.lists(st.text("abé", max_size=6), min_size=1, max_size=12), st.integers(0, 99), st.integers(1, 8))
def test_tokens_are_those_of_cold_decoding_whatever_was_typed_before(texts: list[str], seed: int, count: int) -> None:
    choices = PartialWordCache(SPELLED.get)
    for text in texts:
        stable = prompt(text)
        start = choices.start(ASKED, stable)
        extended = start.prompt
        known = list(extended.token_ids[len(stable.token_ids) :])
        generated = decode(extended, seed, count)
        assert known + generated == decode(stable, seed, len(known) + count)
        assert b"".join(map(SPELLED.__getitem__, known)) + extended.typed == stable.typed
        assert extended.increment_tokens == stable.increment_tokens + len(known)
        extended.typed.decode()  # begins with a whole character
        start.remember(packed(generated))


def test_typing_on_chooses_no_token_again() -> None:
    choices = PartialWordCache(SPELLED.get)
    choices.start(ASKED, prompt("ab")).remember(packed([3, 4, 0]))  # ab, ba, a
    assert choices.start(ASKED, prompt("abbaa")).prompt == TokenizedPrompt(packed([7, 7, 3, 4, 0]), 0, 1, 0, 4, b"")
    assert choices.start(ASKED, prompt("abb")).prompt == TokenizedPrompt(packed([7, 7, 3]), 0, 1, 0, 2, b"b")


def test_deleted_text_is_known_from_when_it_was_typed() -> None:
    choices = PartialWordCache(SPELLED.get)
    for number in range(MOST_PROMPTS):
        choices.start(ASKED, prompt("ab", [number])).remember(packed([3]))
    assert choices.start(ASKED, prompt("ab", [0])).prompt.token_ids == packed([0, 3])
    choices.start(ASKED, prompt("ab", [99])).remember(packed([3]))
    assert choices.start(ASKED, prompt("ab", [0])).prompt == prompt("ab", [0])


def test_a_cancelled_request_takes_nothing_away() -> None:
    choices = PartialWordCache(SPELLED.get)
    choices.start(ASKED, prompt("abba")).remember(packed([3, 4]))
    choices.start(ASKED, prompt("abba")).remember(packed([3]))
    choices.start(ASKED, prompt("abba")).remember(packed())
    assert choices.start(ASKED, prompt("abba")).prompt.token_ids == packed([7, 7, 3, 4])


def test_drawn_and_cold_texts_and_alternatives_decode_all_that_was_typed() -> None:
    choices = PartialWordCache(SPELLED.get)
    choices.start(ASKED, prompt("ab")).remember(packed([3]))
    for other in (
        replace(REQUEST, sampling=Sampling(1.0)),
        replace(REQUEST, reuse=False),
        replace(REQUEST, alternatives=1),
        replace(REQUEST, best_of=2),
    ):
        assert choices.start(Request(other), prompt("ab")).prompt == prompt("ab")
        choices.start(Request(other), prompt("ba")).remember(packed([4]))
    assert choices.start(ASKED, prompt("ba")).prompt == prompt("ba")


def test_a_document_that_is_forgotten_meanwhile_is_not_remembered() -> None:
    choices = PartialWordCache(SPELLED.get)
    at_work = choices.start(ASKED, prompt("ab"))
    choices.forget("document")
    at_work.remember(packed([3]))
    assert choices.start(ASKED, prompt("ab")).prompt == prompt("ab")
    choices.start(ASKED, prompt("ab")).remember(packed([3]))
    choices.clear()
    assert choices.start(ASKED, prompt("ab")).prompt == prompt("ab")


def test_what_is_remembered_counts_as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_words, "MAX_BYTES", 3 * (BYTES_PER_SESSION + 1010 * BYTES_PER_ID))
    choices = PartialWordCache(SPELLED.get)
    long = dataclasses.replace(prompt("ab"), token_ids=packed(range(1000)))
    for session in "abcd":
        choices.start(Request(replace(REQUEST, session=session)), long).remember(packed([3]))
    starts = [choices.start(Request(replace(REQUEST, session=session)), long) for session in "dcba"]
    assert [start.prompt == long for start in starts] == [False, False, False, True]


def test_forgotten_documents_leave_nothing() -> None:
    choices = PartialWordCache(SPELLED.get)
    for session in ("one/document", "two/document", "one/other"):
        choices.start(Request(replace(REQUEST, session=session)), prompt("ab")).remember(packed([3]))
    choices.forget("document")
    assert choices.start(Request(replace(REQUEST, session="one/document")), prompt("ab")).prompt == prompt("ab")
    assert choices.start(Request(replace(REQUEST, session="two/document")), prompt("ab")).prompt == prompt("ab")
    assert choices.start(Request(replace(REQUEST, session="one/other")), prompt("ab")).prompt != prompt("ab")
