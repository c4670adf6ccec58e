"""Several texts of one request: where they leave each other, and which is the best."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from inference.backends.model import Choice, Chunk
from inference.engine.completing import SharedState
from inference.engine.request import Request
from inference.engine.search import COMPARED
from inference.text.healing import Healer
from inference.text.prompts import tokenize_prompt
from inference.text.token_ids import packed
from protocol.messages import Alternative, Prompt, StopRule
from tests.inference.engine.driving import (
    CONTEXT,
    REQUEST,
    beside,
    drive,
    one_after_another,
    prompt_ids,
)


def test_an_alternative_leaves_the_suggestion_which_is_then_resident_again(shared: SharedState) -> None:
    a, b, c, d, e = (shared.tokenizer.encode(letter)[0] for letter in "abcde")
    end = min(shared.tokenizer.markers.end)
    request = replace(REQUEST, alternatives=1)
    run, chunks = drive(request, shared, one_after_another([a, beside(b, d), beside(c), end, e, end]))
    assert (run.completion().text, run.completion().alternatives) == ("abc", (Alternative("ade", "eos"),))
    prompt = len(prompt_ids(shared, request))
    assert [(tuple(chunk.token_ids), chunk.start - prompt, chunk.wanted, chunk.top) for chunk in chunks[-6:]] == [
        ((a,), 0, 1, 2),
        ((b,), 1, 1, 2),
        ((c,), 2, 1, 2),
        ((d,), 1, 1, 2),
        ((e,), 2, 1, 2),
        ((b, c), 1, 0, 0),
    ]
    usage = run.completion().usage
    assert (usage.generated_tokens, usage.forwards) == (5, len(chunks))  # a b c, d e


def test_an_alternative_computes_what_the_one_before_it_has_overwritten(shared: SharedState) -> None:
    a, b, c, d, e = (shared.tokenizer.encode(letter)[0] for letter in "abcde")
    end = min(shared.tokenizer.markers.end)
    request = replace(REQUEST, alternatives=2)
    said = [beside(a, d), b, Choice(c, -0.5, ((c, -0.5), (e, -0.9))), end, end, end]
    run, chunks = drive(request, shared, one_after_another(said))
    assert [other.text for other in run.completion().alternatives] == ["d", "abe"]
    assert [tuple(chunk.token_ids) for chunk in chunks[-3:]] == [(d,), (a, b, e), (c,)]


def test_alternatives_leave_alternatives_too(shared: SharedState) -> None:
    """But not where these only repeat the suggestion, which they would leave for the same texts."""
    a, b, c, d, e = (shared.tokenizer.encode(letter)[0] for letter in "abcde")
    end = min(shared.tokenizer.markers.end)
    request = replace(REQUEST, alternatives=2)
    said = [beside(a), beside(b, d), end, beside(e, c), end, end]
    run, chunks = drive(request, shared, one_after_another(said))
    assert (run.completion().text, [other.text for other in run.completion().alternatives]) == ("ab", ["ade", "adc"])
    assert [tuple(chunk.token_ids) for chunk in chunks[-4:]] == [(d,), (e,), (c,), (b,)]


def test_an_alternative_without_text_is_none(shared: SharedState) -> None:
    """It has gone through some forwards all the same."""
    (first, *_), (newline, *_) = shared.tokenizer.encode(" 1"), shared.tokenizer.encode("\n")
    dedent = shared.tokenizer.encode("x")  # what comes before it is dropped
    request = replace(REQUEST, alternatives=1)
    said = [beside(first, newline), min(shared.tokenizer.markers.end), *dedent]
    run, chunks = drive(request, shared, one_after_another(said))
    assert (run.completion().text, run.completion().alternatives) == (
        shared.tokenizer.text_tokens()[first].decode(),
        (),
    )
    assert [(chunk.token_ids, chunk.start, chunk.wanted) for chunk in chunks[-2:]] == [
        (packed([newline]), len(prompt_ids(shared, request)), 1),
        (packed([first]), len(prompt_ids(shared, request)), 0),
    ]


def test_the_same_text_in_other_tokens_is_no_alternative(shared: SharedState) -> None:
    a, b, c = (shared.tokenizer.encode(letter)[0] for letter in "abc")
    (pair,) = shared.tokenizer.encode("re")
    r, e = (shared.tokenizer.encode(letter)[0] for letter in "re")
    end = min(shared.tokenizer.markers.end)
    said = [beside(pair, r), beside(end, a), e, end, b, c, end]
    run, _ = drive(replace(REQUEST, alternatives=1), shared, one_after_another(said))
    assert (run.completion().text, [other.text for other in run.completion().alternatives]) == ("re", ["reabc"])


def test_alternatives_behind_typed_bytes_are_other_texts(shared: SharedState) -> None:
    """Not the same text behind another spelling of the typed bytes; where the text is empty, any."""
    healer = Healer(shared.tokenizer)
    shared = dataclasses.replace(shared, healer=healer)
    request = replace(REQUEST, prompt=Prompt("import os\n" * 12, "\n", "x = are"), max_tokens=1, alternatives=2)
    typed = tokenize_prompt(request.prompt, shared.tokenizer, CONTEXT, 1, healer).typed
    assert len(typed) > 1

    def says(*wanted: int) -> Callable[[Chunk], list[Choice]]:
        def choices(chunk: Chunk) -> list[Choice]:
            allowed = wanted if chunk.allowed is None else chunk.allowed.tolist()
            order = [token_id for token_id in (*wanted, *allowed) if token_id in allowed]
            return [beside(*list(dict.fromkeys(order))[: max(1, chunk.top)])] * chunk.wanted

        return choices

    digits = [token_id for text in "123are " for token_id in shared.tokenizer.encode(text)]
    run, _ = drive(request, shared, says(*digits))
    assert run.completion().text == "1"
    assert [other.text for other in run.completion().alternatives] == ["2", "3"]
    (end, *_) = shared.tokenizer.markers.end
    run, _ = drive(replace(request, session="b.py"), shared, says(end, *digits[1:]))
    assert (run.completion().text, run.completion().finish_reason) == ("", "eos")
    assert [other.text for other in run.completion().alternatives] == ["2", "3"]


def test_the_best_text_fits_between_prefix_and_suffix(shared: SharedState) -> None:
    """The suffix makes up for a less probable text; then the best text is resident, and the first to be returned."""
    a, b, c, d = (shared.tokenizer.encode(letter)[0] for letter in "abcd")
    newline = shared.tokenizer.encode("\n")[0]
    end = min(shared.tokenizer.markers.end)
    suffix = "\nreturn value\n"
    request = replace(REQUEST, prompt=replace(REQUEST.prompt, suffix=suffix), stop=StopRule(), best_of=2)
    expected = shared.tokenizer.encode(suffix)[:COMPARED]
    said = iter([beside(a, c), b, newline, d, end])

    def says(chunk: Chunk) -> list[Choice | int]:
        if chunk.forced:
            assert packed(chunk.forced) == expected
            assert tuple(chunk.token_ids[1:]) == tuple(expected[:-1])
            return [Choice(token_id, -1.0 if chunk.token_ids[0] == b else -0.5) for token_id in chunk.forced]
        return [next(said) for _ in range(chunk.wanted)]

    run, chunks = drive(request, shared, says)
    completion = run.completion()
    assert (completion.text, completion.finish_reason, completion.alternatives) == ("cd", "eos", ())
    assert completion.mean_logprob == pytest.approx((-1.0 - 0.5) / 2)
    assert completion.usage.forwards == len(chunks)
    assert (chunks[-1].token_ids[0], chunks[-1].start) == (d, len(prompt_ids(shared, request)) + 1)  # the last written


@pytest.mark.parametrize(("suffix", "forced"), [("", 0), ("\n", 2)])
def test_without_a_suffix_the_most_probable_text_is_the_best(shared: SharedState, suffix: str, forced: int) -> None:
    a, b = (shared.tokenizer.encode(letter)[0] for letter in "ab")
    end = min(shared.tokenizer.markers.end)
    request = replace(REQUEST, prompt=replace(REQUEST.prompt, suffix=suffix), alternatives=1, best_of=2)
    said = iter([beside(a, b), end, end])

    def says(chunk: Chunk) -> list[Choice | int]:
        return [next(said) for _ in range(chunk.wanted)] if not chunk.forced else [*chunk.forced]

    run, chunks = drive(request, shared, says)
    assert (run.completion().text, run.completion().alternatives) == ("a", (Alternative("b", "eos"),))
    assert sum(bool(chunk.forced) for chunk in chunks) == forced


def test_an_empty_text_competes_too_and_its_prompt_stays_resident(shared: SharedState) -> None:
    a = shared.tokenizer.encode("a")[0]
    end = min(shared.tokenizer.markers.end)
    request = replace(REQUEST, alternatives=1, best_of=2)
    said = iter([beside(end, a), end])

    def says(chunk: Chunk) -> list[Choice | int]:
        if chunk.forced:
            return [Choice(token_id, -0.1 if chunk.token_ids[0] == a else -9.0) for token_id in chunk.forced]
        return [next(said) for _ in range(chunk.wanted)]

    run, _ = drive(request, shared, says)
    assert (run.completion().text, run.completion().alternatives) == ("a", ())
    prompt = prompt_ids(shared, request)
    _, chunks = drive(replace(REQUEST, max_tokens=1), shared, one_after_another([end]))
    assert [(tuple(chunk.token_ids), chunk.start) for chunk in chunks] == [(tuple(prompt[-1:]), len(prompt) - 1)]


def test_a_text_that_ends_at_once_is_compared_behind_all_its_tokens(shared: SharedState) -> None:
    """The text before it has overwritten some."""
    a, b, c, d = (shared.tokenizer.encode(letter)[0] for letter in "abcd")
    end = min(shared.tokenizer.markers.end)
    request = replace(REQUEST, alternatives=2, best_of=3)
    said = [beside(a, d), b, Choice(c, -0.5, ((c, -0.5), (end, -0.9))), end, end]
    left = iter(said)
    run, chunks = drive(request, shared, lambda chunk: [*chunk.forced] or [next(left) for _ in range(chunk.wanted)])
    assert {run.completion().text, *(other.text for other in run.completion().alternatives)} == {"abc", "d", "ab"}
    resident, prompt = list[int](), len(prompt_ids(shared, request))
    for chunk in chunks:
        assert chunk.start <= len(resident)
        resident[chunk.start :] = chunk.token_ids
        if chunk.forced:
            written = resident[prompt : len(resident) - len(chunk.forced) + 1]
            assert written in ([a, b, c], [d], [a, b])


def test_what_is_compared_fits_into_the_context(shared: SharedState) -> None:
    shared = dataclasses.replace(shared, context_tokens=64)
    request = replace(REQUEST, prompt=Prompt("", "\nreturn something else\n" * 9, "x"), max_tokens=32, best_of=2)
    a, b = (shared.tokenizer.encode(letter)[0] for letter in "ab")
    _, chunks = drive(request, shared, lambda chunk: [*(chunk.forced or [beside(a, b)] * chunk.wanted)])
    assert any(chunk.forced for chunk in chunks)
    assert max(chunk.stop for chunk in chunks) <= 64


def test_of_texts_that_are_ranked_nothing_is_reported_before_the_end(shared: SharedState) -> None:
    reported = set[str]()
    request = Request(replace(REQUEST, best_of=2), changed=lambda request: reported.add(request.text), grows=True)
    a, b = (shared.tokenizer.encode(letter)[0] for letter in "ab")
    drive(request, shared, lambda chunk: [*chunk.forced] or [beside(a, b)] * chunk.wanted)
    assert request.completion().text
    assert reported <= {""}
