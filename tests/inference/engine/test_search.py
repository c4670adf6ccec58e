"""Several texts of one request: where they leave each other, and which is the best."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from inference.backends.model import Choice, Chunk
from inference.engine.completing import SharedState
from inference.engine.request import Request
from inference.engine.search import COMPARED, COMPARED_CHARS, Branch, branches, text_and_suffix
from inference.text.healing import Healer
from inference.text.prompts import tokenize_prompt
from inference.text.token_ids import packed
from protocol.messages import Alternative, Prompt, StopRule
from tests.inference.engine.driving import CONTEXT, REQUEST, beside, drive, one_after_another, prompt_ids


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
    assert (run.completion().text, run.completion().alternatives) == (shared.tokenizer.text_tokens()[first].decode(), ())
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


SPELLED = dict(enumerate([b"re", b"turn", b"turned", b" x", b"\n", b"return", b"set", b"r", "é".encode()], start=1))
END = 99
IDS = {spelled: token_id for token_id, spelled in SPELLED.items()}


def chose(spelled: bytes | None, logprob: float, **others: float) -> Choice:
    """A choice among others, by their texts; `END` is the end."""
    top = [(END if text == "END" else IDS[text.encode()], value) for text, value in others.items()]
    token_id = END if spelled is None else IDS[spelled]
    return Choice(token_id, logprob, ((token_id, logprob), *top))


def left(chosen: list[Choice], typed: bytes, text: str) -> list[tuple[int, bytes | None]]:
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
    assert left(chosen, b"", "return") == [(1, b"turned"), (2, b"set"), (1, b"set"), (0, b"set")]


def test_no_branch_spells_typed_bytes_in_other_tokens() -> None:
    chosen = [chose(b"re", -0.1, r=-0.5, set=-0.6), chose(b"turn", -0.2, turned=-1.0), chose(b"\n", -0.1)]
    assert left(chosen, b"re", "turn") == [(1, b"turned")]
    chosen = [chose(b"return", -0.1, re=-0.2, r=-0.3), chose(b"\n", -0.1)]
    assert left(chosen, b"re", "turn") == []
    assert left(chosen, b"r", "eturn") == [(0, b"re")]


def test_a_text_branches_at_its_end_but_not_beyond_it() -> None:
    chosen = [chose(b"re", -0.1), chose(b"\n", -0.1, turn=-2.0), chose(b" x", -0.1, set=-0.2)]
    assert left(chosen, b"", "re") == [(1, b"turn")]
    assert left(chosen, b"", "re\n") == [(2, b"set"), (1, b"turn")]


@pytest.mark.parametrize(("text", "expected"), [("", []), ("re", [(1, None)])])
def test_a_text_can_end_earlier_but_not_be_empty(text: str, expected: list[tuple[int, bytes | None]]) -> None:
    chosen = [chose(b"re", -0.1, END=-0.2), chose(b"turn", -0.1, END=-0.3)]
    assert left(chosen if text else chosen[:1], b"", text and "returns") == expected


def test_the_end_of_an_empty_text_has_others_in_its_place() -> None:
    assert left([chose(None, -0.1, set=-0.2)], b"", "") == [(0, b"set")]
    assert left([chose(b"re", -0.1), chose(None, -0.1, set=-0.2)], b"re", "") == [(1, b"set")]


def test_bytes_count_not_characters() -> None:
    chosen = [chose("é".encode(), -0.1), chose(b"\n", -0.1, set=-0.2), chose(b" x", -0.1, set=-0.3)]
    assert left(chosen, b"", "é") == [(1, b"set")]


PIECES = dict(enumerate([b"re", b"turn", b") +", "é".encode()[:1], "é".encode()[1:]]))


@pytest.mark.parametrize(
    ("token_ids", "text", "expected"),
    [
        ([0, 1], "return", (2, "\n")),
        ([0, 1], "re", (1, "\n")),
        ([0, 2], "re)", (1, ")\n")),
        ([0, 2], "", (0, "\n")),
        ([3, 4, 0], "é", (2, "\n")),
        ([], "", (0, "\n")),
    ],
)
def test_a_text_keeps_the_tokens_that_lie_within_it(token_ids: list[int], text: str, expected: tuple[int, str]) -> None:
    assert text_and_suffix(packed(token_ids), text.encode(), "\n", PIECES.get) == expected


def test_only_the_beginning_of_the_suffix_counts() -> None:
    assert text_and_suffix(packed([0]), b"re", "x" * 1000, PIECES.get) == (1, "x" * COMPARED_CHARS)
