"""The steps of one request, with a test in the place of the model: which chunks it asks for, and what follows."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from inference.backends.chunk import Chunk, Draw
from inference.backends.model import Choice
from inference.engine.active_request import ActiveRequest
from inference.engine.completing import Tools, complete
from inference.engine.decoding.draft_history import DraftHistories
from inference.engine.decoding.fitting import COMPARED
from inference.engine.decoding.typed_choices import TypedChoices
from inference.engine.slots import Slots
from inference.text.healing import Healer
from inference.text.prompts import tokenize_prompt
from inference.text.token_ids import TokenIds, packed
from inference.text.tokenization import TextTokenizer
from kv_store.dry_workspace import DryWorkspace
from protocol.errors import BadInput
from protocol.messages import Alternative, CompletionRequest, Prompt, Sampling, StopRule, TokenLogprob
from tests.inference.slots import store_without_room

REQUEST = CompletionRequest("a.py", Prompt("import os\n" * 12, "\n", "x ="), 5, StopRule(indent=4))
CONTEXT, CHUNK = 512, 16


@pytest.fixture
def tools(tiny_tokenizer: TextTokenizer) -> Tools:
    slots = Slots(1, lambda: DryWorkspace(bytes_per_token=4), store_without_room(), context_tokens=64)
    return Tools(tiny_tokenizer, None, TypedChoices(tiny_tokenizer.bytes_of), slots, None, CONTEXT)


def prompt_ids(tools: Tools, request: CompletionRequest) -> TokenIds:
    return tokenize_prompt(request.prompt, tools.tokenizer, CONTEXT, request.max_tokens).token_ids


def drive(
    request: CompletionRequest, tools: Tools, says: Callable[[Chunk], Sequence[int | Choice]]
) -> tuple[ActiveRequest, list[Chunk]]:
    """Answer every chunk with the tokens that `says` gives for it; the run that has ended, and the chunks."""
    run, chunks = ActiveRequest(request, lambda: False, complete(request, tools, lambda: False, lambda: CHUNK)), []
    while (chunk := run.chunk) is not None:
        chunks.append(chunk)
        run.resume(tuple(said if isinstance(said, Choice) else Choice(said, -0.5) for said in says(chunk)))
    return run, chunks


def one_after_another(said: Sequence[int | Choice]) -> Callable[[Chunk], Sequence[Any]]:
    left = iter(said)
    return lambda chunk: [next(left) for _ in range(chunk.wanted)]


def beside(token_id: int, *others: int) -> Choice:
    """A choice that was nearly another one."""
    return Choice(token_id, -0.5, ((token_id, -0.5), *((other, -1.0 - rank) for rank, other in enumerate(others))))


def test_the_prompt_comes_in_chunks_and_the_last_wants_what_follows(tools: Tools) -> None:
    said = tools.tokenizer.encode(" 1 + 2 + 3 + 4")[: REQUEST.max_tokens]
    run, chunks = drive(REQUEST, tools, one_after_another(said))
    prompt = prompt_ids(tools, REQUEST)
    prefill, decode = chunks[: -(-len(prompt) // CHUNK)], chunks[-(-len(prompt) // CHUNK) :]
    assert packed(token_id for chunk in prefill for token_id in chunk.token_ids) == prompt
    assert [chunk.start for chunk in prefill] == list(range(0, len(prompt), CHUNK))
    assert [chunk.wanted for chunk in prefill] == [0] * (len(prefill) - 1) + [1]
    assert [tuple(chunk.token_ids) for chunk in decode] == [(token_id,) for token_id in said[:-1]]
    assert [chunk.start for chunk in decode] == list(range(len(prompt), len(prompt) + len(decode)))
    completion = run.completion()
    assert (completion.finish_reason, completion.usage.forwards) == ("length", len(chunks))
    assert tools.tokenizer.encode(completion.text) == said


def test_ahead_work_wants_nothing_and_the_next_key_finds_it_done(tools: Tools) -> None:
    _, chunks = drive(replace(REQUEST, max_tokens=0), tools, one_after_another(()))
    assert {chunk.wanted for chunk in chunks} == {0}
    assert drive(replace(REQUEST, max_tokens=0), tools, one_after_another(()))[1] == []
    _, chunks = drive(replace(REQUEST, max_tokens=1), tools, one_after_another(tools.tokenizer.encode("a")))
    assert [(chunk.token_ids, chunk.wanted) for chunk in chunks] == [(prompt_ids(tools, REQUEST)[-1:], 1)]


def test_an_alternative_leaves_the_suggestion_which_is_then_resident_again(tools: Tools) -> None:
    a, b, c, d, e = (tools.tokenizer.encode(letter)[0] for letter in "abcde")
    end = min(tools.tokenizer.markers.end)
    request = replace(REQUEST, alternatives=1)
    run, chunks = drive(request, tools, one_after_another([a, beside(b, d), beside(c), end, e, end]))
    assert (run.completion().text, run.completion().alternatives) == ("abc", (Alternative("ade", "eos"),))
    prompt = len(prompt_ids(tools, request))
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


def test_an_alternative_computes_what_the_one_before_it_has_overwritten(tools: Tools) -> None:
    a, b, c, d, e = (tools.tokenizer.encode(letter)[0] for letter in "abcde")
    end = min(tools.tokenizer.markers.end)
    request = replace(REQUEST, alternatives=2)
    said = [beside(a, d), b, Choice(c, -0.5, ((c, -0.5), (e, -0.9))), end, end, end]
    run, chunks = drive(request, tools, one_after_another(said))
    assert [other.text for other in run.completion().alternatives] == ["d", "abe"]
    assert [tuple(chunk.token_ids) for chunk in chunks[-3:]] == [(d,), (a, b, e), (c,)]


def test_alternatives_leave_alternatives_too(tools: Tools) -> None:
    """But not where these only repeat the suggestion, which they would leave for the same texts."""
    a, b, c, d, e = (tools.tokenizer.encode(letter)[0] for letter in "abcde")
    end = min(tools.tokenizer.markers.end)
    request = replace(REQUEST, alternatives=2)
    said = [beside(a), beside(b, d), end, beside(e, c), end, end]
    run, chunks = drive(request, tools, one_after_another(said))
    assert (run.completion().text, [other.text for other in run.completion().alternatives]) == ("ab", ["ade", "adc"])
    assert [tuple(chunk.token_ids) for chunk in chunks[-4:]] == [(d,), (e,), (c,), (b,)]


def test_an_alternative_without_text_is_none(tools: Tools) -> None:
    """It has gone through some forwards all the same."""
    (first, *_), (newline, *_) = tools.tokenizer.encode(" 1"), tools.tokenizer.encode("\n")
    dedent = tools.tokenizer.encode("x")  # what comes before it is dropped
    request = replace(REQUEST, alternatives=1)
    said = [beside(first, newline), min(tools.tokenizer.markers.end), *dedent]
    run, chunks = drive(request, tools, one_after_another(said))
    assert (run.completion().text, run.completion().alternatives) == (
        tools.tokenizer.text_tokens()[first].decode(),
        (),
    )
    assert [(chunk.token_ids, chunk.start, chunk.wanted) for chunk in chunks[-2:]] == [
        (packed([newline]), len(prompt_ids(tools, request)), 1),
        (packed([first]), len(prompt_ids(tools, request)), 0),
    ]


def test_the_same_text_in_other_tokens_is_no_alternative(tools: Tools) -> None:
    a, b, c = (tools.tokenizer.encode(letter)[0] for letter in "abc")
    (pair,) = tools.tokenizer.encode("re")
    r, e = (tools.tokenizer.encode(letter)[0] for letter in "re")
    end = min(tools.tokenizer.markers.end)
    said = [beside(pair, r), beside(end, a), e, end, b, c, end]
    run, _ = drive(replace(REQUEST, alternatives=1), tools, one_after_another(said))
    assert (run.completion().text, [other.text for other in run.completion().alternatives]) == ("re", ["reabc"])


def test_alternatives_behind_typed_bytes_are_other_texts(tools: Tools) -> None:
    """Not the same text behind another spelling of the typed bytes; where the text is empty, any."""
    healer = Healer(tools.tokenizer)
    tools = dataclasses.replace(tools, healer=healer)
    request = replace(REQUEST, prompt=Prompt("import os\n" * 12, "\n", "x = are"), max_tokens=1, alternatives=2)
    typed = tokenize_prompt(request.prompt, tools.tokenizer, CONTEXT, 1, healer).typed
    assert len(typed) > 1

    def says(*wanted: int) -> Callable[[Chunk], list[Choice]]:
        def choices(chunk: Chunk) -> list[Choice]:
            allowed = wanted if chunk.allowed is None else chunk.allowed.tolist()
            order = [token_id for token_id in (*wanted, *allowed) if token_id in allowed]
            return [beside(*list(dict.fromkeys(order))[: max(1, chunk.top)])] * chunk.wanted

        return choices

    digits = [token_id for text in "123are " for token_id in tools.tokenizer.encode(text)]
    run, _ = drive(request, tools, says(*digits))
    assert run.completion().text == "1"
    assert [other.text for other in run.completion().alternatives] == ["2", "3"]
    (end, *_) = tools.tokenizer.markers.end
    run, _ = drive(replace(request, session="b.py"), tools, says(end, *digits[1:]))
    assert (run.completion().text, run.completion().finish_reason) == ("", "eos")
    assert [other.text for other in run.completion().alternatives] == ["2", "3"]


def test_the_best_text_fits_between_prefix_and_suffix(tools: Tools) -> None:
    """The suffix makes up for a less probable text; then the best text is resident, and the first to be returned."""
    a, b, c, d = (tools.tokenizer.encode(letter)[0] for letter in "abcd")
    newline = tools.tokenizer.encode("\n")[0]
    end = min(tools.tokenizer.markers.end)
    suffix = "\nreturn value\n"
    request = replace(REQUEST, prompt=replace(REQUEST.prompt, suffix=suffix), stop=StopRule(), best_of=2)
    expected = tools.tokenizer.encode(suffix)[:COMPARED]
    said = iter([beside(a, c), b, newline, d, end])

    def says(chunk: Chunk) -> list[Choice | int]:
        if chunk.forced:
            assert packed(chunk.forced) == expected
            assert tuple(chunk.token_ids[1:]) == tuple(expected[:-1])
            return [Choice(token_id, -1.0 if chunk.token_ids[0] == b else -0.5) for token_id in chunk.forced]
        return [next(said) for _ in range(chunk.wanted)]

    run, chunks = drive(request, tools, says)
    completion = run.completion()
    assert (completion.text, completion.finish_reason, completion.alternatives) == ("cd", "eos", ())
    assert completion.mean_logprob == pytest.approx((-1.0 - 0.5) / 2)
    assert completion.usage.forwards == len(chunks)
    assert (chunks[-1].token_ids[0], chunks[-1].start) == (d, len(prompt_ids(tools, request)) + 1)  # the last written


@pytest.mark.parametrize(("suffix", "forced"), [("", 0), ("\n", 2)])
def test_without_a_suffix_the_most_probable_text_is_the_best(tools: Tools, suffix: str, forced: int) -> None:
    a, b = (tools.tokenizer.encode(letter)[0] for letter in "ab")
    end = min(tools.tokenizer.markers.end)
    request = replace(REQUEST, prompt=replace(REQUEST.prompt, suffix=suffix), alternatives=1, best_of=2)
    said = iter([beside(a, b), end, end])

    def says(chunk: Chunk) -> list[Choice | int]:
        return [next(said) for _ in range(chunk.wanted)] if not chunk.forced else [*chunk.forced]

    run, chunks = drive(request, tools, says)
    assert (run.completion().text, run.completion().alternatives) == ("a", (Alternative("b", "eos"),))
    assert sum(bool(chunk.forced) for chunk in chunks) == forced


def test_an_empty_text_competes_too_and_its_prompt_stays_resident(tools: Tools) -> None:
    a = tools.tokenizer.encode("a")[0]
    end = min(tools.tokenizer.markers.end)
    request = replace(REQUEST, alternatives=1, best_of=2)
    said = iter([beside(end, a), end])

    def says(chunk: Chunk) -> list[Choice | int]:
        if chunk.forced:
            return [Choice(token_id, -0.1 if chunk.token_ids[0] == a else -9.0) for token_id in chunk.forced]
        return [next(said) for _ in range(chunk.wanted)]

    run, _ = drive(request, tools, says)
    assert (run.completion().text, run.completion().alternatives) == ("a", ())
    prompt = prompt_ids(tools, request)
    _, chunks = drive(replace(REQUEST, max_tokens=1), tools, one_after_another([end]))
    assert [(tuple(chunk.token_ids), chunk.start) for chunk in chunks] == [(tuple(prompt[-1:]), len(prompt) - 1)]


def test_a_text_that_ends_at_once_is_compared_behind_all_its_tokens(tools: Tools) -> None:
    """The text before it has overwritten some."""
    a, b, c, d = (tools.tokenizer.encode(letter)[0] for letter in "abcd")
    end = min(tools.tokenizer.markers.end)
    request = replace(REQUEST, alternatives=2, best_of=3)
    said = [beside(a, d), b, Choice(c, -0.5, ((c, -0.5), (end, -0.9))), end, end]
    left = iter(said)
    run, chunks = drive(request, tools, lambda chunk: [*chunk.forced] or [next(left) for _ in range(chunk.wanted)])
    assert {run.completion().text, *(other.text for other in run.completion().alternatives)} == {"abc", "d", "ab"}
    resident, prompt = list[int](), len(prompt_ids(tools, request))
    for chunk in chunks:
        assert chunk.start <= len(resident)
        resident[chunk.start :] = chunk.token_ids
        if chunk.forced:
            written = resident[prompt : len(resident) - len(chunk.forced) + 1]
            assert written in ([a, b, c], [d], [a, b])


def test_what_is_compared_fits_into_the_context(tools: Tools) -> None:
    tools = dataclasses.replace(tools, context_tokens=64)
    request = replace(REQUEST, prompt=Prompt("", "\nreturn something else\n" * 9, "x"), max_tokens=32, best_of=2)
    a, b = (tools.tokenizer.encode(letter)[0] for letter in "ab")
    _, chunks = drive(request, tools, lambda chunk: [*(chunk.forced or [beside(a, b)] * chunk.wanted)])
    assert any(chunk.forced for chunk in chunks)
    assert max(chunk.stop for chunk in chunks) <= 64


def test_of_texts_that_are_ranked_nothing_is_told_before_the_end(tools: Tools) -> None:
    request, told = replace(REQUEST, best_of=2), list[str]()
    a, b = (tools.tokenizer.encode(letter)[0] for letter in "ab")
    steps = complete(request, tools, lambda: False, lambda: CHUNK, on_text=told.append)
    run = ActiveRequest(request, lambda: False, steps)
    while (chunk := run.chunk) is not None:
        run.resume(tuple(Choice(token_id, -0.5) for token_id in chunk.forced) or (beside(a, b),) * chunk.wanted)
    assert run.completion().text
    assert told == []


def test_text_is_told_while_it_grows_except_what_a_stop_may_take_away(tools: Tools) -> None:
    request = replace(REQUEST, max_tokens=20, stop=StopRule(indent=0), stop_texts=("\n\n",))
    said = [token_id for text in ("a", "b\n", "c", "\n", "\n") for token_id in tools.tokenizer.encode(text)]
    told: list[str] = []
    steps = complete(request, tools, lambda: False, lambda: CHUNK, on_text=told.append)
    run, says = ActiveRequest(request, lambda: False, steps), one_after_another(said)
    while (chunk := run.chunk) is not None:
        run.resume(tuple(Choice(token_id, -0.5) for token_id in says(chunk)))
    assert list(dict.fromkeys(told)) == ["a", "ab", "ab\nc"]
    assert (run.completion().text, run.completion().finish_reason) == ("ab\nc", "stop")


@pytest.mark.parametrize(
    ("said", "max_tokens", "ended"),
    [
        (("1", ", ", "b", ")", "\n", "c"), 20, ("1, ", "stop")),
        (("1", ", ", "b", ")", None), 20, ("1, ", "stop")),
        (("1", ",", "b", ")"), 4, ("1,", "stop")),
        (("1", ", ", "b", ") + 1", None), 20, ("1, b) + 1", "eos")),
    ],
)
def test_text_ends_where_it_goes_on_as_the_suffix_does(
    tools: Tools, said: tuple[str | None, ...], max_tokens: int, ended: tuple[str, str]
) -> None:
    prompt = Prompt("import os\n", "b)\n", "f(")
    request = replace(REQUEST, prompt=prompt, max_tokens=max_tokens, stop=StopRule(indent=0))
    end = tools.tokenizer.markers.suffix
    token_ids = [token_id for text in said for token_id in ([end] if text is None else tools.tokenizer.encode(text))]
    run, _ = drive(request, tools, one_after_another(token_ids))
    assert (run.completion().text, run.completion().finish_reason) == ended


def test_sampling_draws_at_points_that_the_seed_decides_and_drafts_nothing(tools: Tools) -> None:
    tools = dataclasses.replace(tools, histories=DraftHistories())
    repeated = tools.tokenizer.encode("x = 1\n")

    def draws(seed: int) -> list[Draw | None]:
        request = replace(REQUEST, stop=StopRule(indent=0), sampling=Sampling(0.7, 0.9, 40, seed))
        _, chunks = drive(request, tools, one_after_another(repeated * 9))
        assert {chunk.wanted for chunk in chunks} <= {0, 1}
        return [chunk.draw for chunk in chunks if chunk.wanted]

    first = draws(1)
    assert all(draw is not None and (draw.temperature, draw.top_p, draw.top_k) == (0.7, 0.9, 40) for draw in first)
    assert draws(1) == first
    assert draws(2) != first


def test_drafts_are_verified_where_only_the_tokens_own_logprobs_are_wanted(tools: Tools) -> None:
    tools = dataclasses.replace(tools, histories=DraftHistories())
    request = replace(REQUEST, max_tokens=12, stop=StopRule(indent=0), top_logprobs=0)
    repeated = tools.tokenizer.encode("import os\n")

    run, chunks = drive(request, tools, one_after_another(repeated * 9))
    assert max(chunk.wanted for chunk in chunks) > 1
    assert run.completion().usage.accepted_tokens > 0
    assert "".join(token.text for token in run.completion().tokens) == run.completion().text


def test_logprobs_are_those_of_the_text_alone(tools: Tools) -> None:
    request = replace(REQUEST, stop_texts=("\n",), top_logprobs=2)
    said = [token_id for text in ("a", "b", "\n") for token_id in tools.tokenizer.encode(text)]
    run, chunks = drive(request, tools, one_after_another(said))
    assert {chunk.top for chunk in chunks if chunk.wanted} == {2}
    assert run.completion().tokens == (TokenLogprob("a", -0.5), TokenLogprob("b", -0.5))


def test_a_late_text_ends_after_its_first_line(tools: Tools) -> None:
    said = [token_id for text in ("a", "b", "\n", "c") for token_id in tools.tokenizer.encode(text)]
    run, _ = drive(replace(REQUEST, stop=StopRule(indent=0), max_decode_ms=1), tools, slowly(one_after_another(said)))
    assert (run.completion().text, run.completion().finish_reason) == ("ab\n", "length")


@pytest.mark.parametrize(("least", "text"), [(0.0, "a" * 10), (0.3, "aaa"), (0.37, "aa"), (1.0, "a")])
def test_an_improbable_text_ends(tools: Tools, least: float, text: str) -> None:
    said = [*tools.tokenizer.encode("a") * 10, min(tools.tokenizer.markers.end)]
    run, _ = drive(replace(REQUEST, max_tokens=12, min_probability=least), tools, one_after_another(said))
    assert run.completion().text == text  # each token has a probability of e**-0.5
    assert run.completion().finish_reason == ("length" if least else "eos")


def test_every_text_has_the_time_limit_to_itself(tools: Tools) -> None:
    a, two, b, newline = (tools.tokenizer.encode(text)[0] for text in ("a", "2", "b", "\n"))
    request = replace(REQUEST, stop=StopRule(indent=0), alternatives=1, max_decode_ms=1)
    run, _ = drive(request, tools, slowly(one_after_another([beside(two, a), newline, b, newline])))
    assert run.completion().text == "2\n"
    assert run.completion().alternatives == (Alternative("ab\n", "length"),)


def slowly(says: Callable[[Chunk], Sequence[Any]]) -> Callable[[Chunk], Sequence[Any]]:
    def after_a_while(chunk: Chunk) -> Sequence[Any]:
        time.sleep(0.002)
        return says(chunk)

    return after_a_while


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stop_texts": ("a", "")}, "1 to 256 characters, not 0"),
        ({"stop_texts": ("a", "b" * 257)}, "not 257"),
        ({"stop_texts": ("a",) * 65}, "at most 64 texts, not 65"),
        ({"top_logprobs": 21}, "not 21"),
        ({"min_probability": 1.5}, "not 1.5"),
        ({"sampling": Sampling(0.0)}, "temperature must be above 0 to sample, not 0.0"),
        ({"sampling": Sampling(1.0, top_p=1.5)}, "not 1.5"),
        ({"sampling": Sampling(1.0, top_k=-1)}, "top_k must be 0 or more, not -1"),
        ({"sampling": Sampling(1.0), "alternatives": 1}, "greedy"),
        ({"sampling": Sampling(1.0), "best_of": 2}, "greedy"),
        ({"prompt": Prompt("", "", token_ids=(5, 100_000))}, "100000"),
        ({"prompt": Prompt("", "", token_ids=(-1,))}, "-1"),
        ({"prompt": Prompt("", "", token_ids=(5,) * CONTEXT)}, f"{CONTEXT} token ids"),
    ],
)
def test_what_cannot_be_chosen_or_ended_is_refused(tools: Tools, fields: dict[str, Any], message: str) -> None:
    run, chunks = drive(replace(REQUEST, **fields), tools, one_after_another(()))
    assert chunks == []
    with pytest.raises(BadInput, match=message):
        run.completion()


def test_a_prompt_of_token_ids_is_computed_as_it_is(tools: Tools) -> None:
    token_ids = (7, 3, 3, 9) * 5
    request = replace(REQUEST, prompt=Prompt("", "", token_ids=token_ids), max_tokens=1)
    _, chunks = drive(request, tools, one_after_another(tools.tokenizer.encode("a")))
    assert tuple(token_id for chunk in chunks for token_id in chunk.token_ids) == token_ids


def test_a_request_that_cannot_be_used_takes_no_workspace(tools: Tools) -> None:
    too_long = replace(REQUEST, prompt=Prompt("", "", "x = 1\n" * CONTEXT))
    for request in (replace(REQUEST, max_tokens=-1), too_long):
        run, chunks = drive(request, tools, one_after_another(()))
        assert chunks == []
        with pytest.raises(BadInput):
            run.completion()
    assert drive(replace(REQUEST, max_tokens=0), tools, one_after_another(()))[0].has_ended


def test_limit_beyond_the_context_counts_as_half_of_it(tools: Tools) -> None:
    letters = tools.tokenizer.encode("a") * CONTEXT
    run, _ = drive(replace(REQUEST, max_tokens=100_000), tools, one_after_another(letters))
    completion = run.completion()
    assert (completion.usage.generated_tokens, completion.finish_reason) == (CONTEXT // 2, "length")
