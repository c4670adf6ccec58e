"""How a text grows behind its prompt, and what ends it, with a test in the place of the model."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from inference.backends.model import Chunk
from inference.engine.completing import SharedState
from inference.engine.drafts import DraftHistories
from inference.engine.request import Request
from inference.engine.slots import Slots
from inference.text.prompts import tokenize_prompt
from kv_store.interface import DryWorkspace
from kv_store.snapshots import Snapshots, StateSnapshot
from protocol.messages import Alternative, Prompt, Sampling, StopRule, TokenLogprob
from tests.inference.engine.driving import CONTEXT, REQUEST, beside, drive, one_after_another
from tests.inference.slots import store_without_room


def test_text_is_reported_while_it_grows_except_what_a_stop_may_take_away(shared: SharedState) -> None:
    spec = replace(REQUEST, max_tokens=20, stop=StopRule(indent=0), stop_texts=("\n\n",))
    said = [token_id for text in ("a", "b\n", "c", "\n", "\n") for token_id in shared.tokenizer.encode(text)]
    reported: list[str] = []
    request = Request(spec, changed=lambda request: reported.append(request.text), grows=True)
    drive(request, shared, one_after_another(said))
    assert list(dict.fromkeys(filter(None, reported))) == ["a", "ab", "ab\nc"]
    assert (request.completion().text, request.completion().finish_reason) == ("ab\nc", "stop")


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
    shared: SharedState, said: tuple[str | None, ...], max_tokens: int, ended: tuple[str, str]
) -> None:
    prompt = Prompt("import os\n", "b)\n", "f(")
    request = replace(REQUEST, prompt=prompt, max_tokens=max_tokens, stop=StopRule(indent=0))
    end = shared.tokenizer.markers.suffix
    token_ids = [token_id for text in said for token_id in ([end] if text is None else shared.tokenizer.encode(text))]
    run, _ = drive(request, shared, one_after_another(token_ids))
    assert (run.completion().text, run.completion().finish_reason) == ended


def test_sampling_draws_at_points_that_the_seed_decides_and_drafts_nothing(shared: SharedState) -> None:
    shared = dataclasses.replace(shared, histories=DraftHistories())
    repeated = shared.tokenizer.encode("x = 1\n")

    def points(seed: int) -> list[float]:
        request = replace(REQUEST, stop=StopRule(indent=0), sampling=Sampling(0.7, 0.9, 40, seed))
        _, chunks = drive(request, shared, one_after_another(repeated * 9))
        assert {chunk.wanted for chunk in chunks} <= {0, 1}
        draws = [chunk.draw for chunk in chunks if chunk.wanted]
        assert all(draw is not None and draw.sampling == request.sampling for draw in draws)
        return [draw.point for draw in draws if draw is not None]

    first = points(1)
    assert points(1) == first
    assert points(2) != first


def test_drafts_are_verified_where_only_the_tokens_own_logprobs_are_wanted(shared: SharedState) -> None:
    shared = dataclasses.replace(shared, histories=DraftHistories())
    request = replace(REQUEST, max_tokens=12, stop=StopRule(indent=0), token_logprobs=True)
    repeated = shared.tokenizer.encode("import os\n")

    run, chunks = drive(request, shared, one_after_another(repeated * 9))
    assert max(chunk.wanted for chunk in chunks) > 1
    assert run.completion().usage.accepted_tokens > 0
    assert "".join(token.text for token in run.completion().tokens) == run.completion().text


def test_recurrent_layers_have_snapshots_where_later_prompts_leave_this_one(shared: SharedState) -> None:
    """At the end of the snippets, near the ends of the prefix and of the prompt, before the increment, and where this
    prompt leaves an earlier one; and no draft shares a forward with the prompt's last tokens, since a wrong one would
    leave no snapshot behind them."""
    snapshots = Snapshots(2**20)
    slots = Slots(1, 1, lambda: DryWorkspace(4, snapshots), store_without_room(), context_tokens=64)
    shared = dataclasses.replace(shared, slots=slots, histories=DraftHistories())
    repeated = shared.tokenizer.encode("import os\n")

    def says(chunk: Chunk) -> Sequence[Any]:
        snapshots.drop_beyond(chunk.start)
        snapshots.put(chunk.stop, StateSnapshot(None, 1))
        return [repeated[(chunk.stop - index) % len(repeated)] for index in range(chunk.wanted, 0, -1)]

    def ends(increment: str, max_tokens: int = 12) -> set[int]:
        """Where the chunks end, counted from the end of the prompt."""
        spec = replace(REQUEST, prompt=replace(REQUEST.prompt, increment=increment), max_tokens=max_tokens)
        _, chunks = drive(spec, shared, says)
        prompt = tokenize_prompt(spec.prompt, shared.tokenizer, CONTEXT, max_tokens)
        size = len(prompt.token_ids)
        assert {joint for joint in prompt.joints if joint} <= {position for position, _ in snapshots.within(size)}
        assert prompt.joints[-1] == size - prompt.increment_tokens
        if max_tokens:
            assert max(chunk.wanted for chunk in chunks if chunk.stop <= size) == 1
            assert max(chunk.wanted for chunk in chunks) > 1
        return {chunk.stop - size for chunk in chunks}

    words = "x = 1\n" * 20
    assert {-8, -1, 0} <= ends("x = 1\n")
    slots.clear(keep_workspaces=True)
    assert {-64, -32, -16, -8, -4, -2, -1, 0} <= ends(words, 0)  # a prefetch: these may cost a forward each
    assert {-1, 0} <= ends(words[:-19])  # which has left the earlier prompt before its own last token


def test_logprobs_are_those_of_the_text_alone(shared: SharedState) -> None:
    request = replace(REQUEST, stop_texts=("\n",), token_logprobs=True)
    said = [token_id for text in ("a", "b", "\n") for token_id in shared.tokenizer.encode(text)]
    run, _ = drive(request, shared, one_after_another(said))
    assert run.completion().tokens == (TokenLogprob("a", -0.5), TokenLogprob("b", -0.5))


def test_a_late_text_ends_after_its_first_line(shared: SharedState) -> None:
    said = [token_id for text in ("a", "b", "\n", "c") for token_id in shared.tokenizer.encode(text)]
    run, _ = drive(replace(REQUEST, stop=StopRule(indent=0), max_decode_ms=1), shared, slowly(one_after_another(said)))
    assert (run.completion().text, run.completion().finish_reason) == ("ab\n", "length")


@pytest.mark.parametrize(("least", "text"), [(0.0, "a" * 10), (0.3, "aaa"), (0.37, "aa"), (1.0, "a")])
def test_an_improbable_text_ends(shared: SharedState, least: float, text: str) -> None:
    said = [*shared.tokenizer.encode("a") * 10, min(shared.tokenizer.markers.end)]
    run, _ = drive(replace(REQUEST, max_tokens=12, min_probability=least), shared, one_after_another(said))
    assert run.completion().text == text  # each token has a probability of e**-0.5
    assert run.completion().finish_reason == ("length" if least else "eos")


def test_every_text_has_the_time_limit_to_itself(shared: SharedState) -> None:
    a, two, b, newline = (shared.tokenizer.encode(text)[0] for text in ("a", "2", "b", "\n"))
    request = replace(REQUEST, stop=StopRule(indent=0), alternatives=1, max_decode_ms=1)
    run, _ = drive(request, shared, slowly(one_after_another([beside(two, a), newline, b, newline])))
    assert run.completion().text == "2\n"
    assert run.completion().alternatives == (Alternative("ab\n", "length"),)


def slowly(says: Callable[[Chunk], Sequence[Any]]) -> Callable[[Chunk], Sequence[Any]]:
    def after_a_while(chunk: Chunk) -> Sequence[Any]:
        time.sleep(0.002)
        return says(chunk)

    return after_a_while
