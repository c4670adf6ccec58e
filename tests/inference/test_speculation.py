"""Speculation in the engine: what right guesses save, what wrong ones leave behind, and that no text changes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from inference.backends.model import SHORT_TOKENS, Choice, Chunk, DryModel
from inference.engine.engine import Engine, EngineConfig
from inference.engine.interface import EngineInfo
from inference.engine.sessions import session_key
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from inference.text.token_ids import packed
from inference.text.tokenization import TextTokenizer
from kv_store.interface import DryWorkspace
from protocol.messages import CompletionRequest, Prompt, StopRule
from tests.inference.requests import complete_cancelled
from tests.inference.slots import last_slot, store_without_room
from tests.inference.tiny import write_checkpoint
from tests.kv_store.integrity import check_integrity

PREFIX = "import os\n\n\ndef size_of(path):\n    return os.stat(path).st_size\n\n\n"
LINE = "print(size_of(path), path, sep=', ')"
BLOCK = StopRule(indent=0)


def ask(increment: str, max_tokens: int = 40, stop: StopRule = BLOCK, session: str = "a.py") -> CompletionRequest:
    return CompletionRequest(session, Prompt(PREFIX, "", increment), max_tokens, stop)


class Parrot(DryModel):
    """Knows one document by heart: whatever it is given of it, it goes on with what follows there."""

    def __init__(self, document: Iterable[int], end_token: int) -> None:
        super().__init__(lambda: DryWorkspace(bytes_per_token=4), context_tokens=512, end_token=end_token)
        self.document = tuple(document)
        self.forwards: list[int] = []

    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        self.forwards.append(sum(len(chunk.token_ids) for chunk in chunks))
        return [tuple(map(self._after, range(chunk.stop - chunk.wanted, chunk.stop))) for chunk in chunks]

    def _after(self, position: int) -> Choice:
        known = position + 1 < len(self.document)
        return Choice(self.document[position + 1], -0.5) if known else self._end


def parrot(tokenizer: TextTokenizer, increment: str, text: str, *, speculation: bool = True) -> tuple[Engine, Parrot]:
    """An engine whose model goes on from the increment with the text."""
    markers = tokenizer.markers
    assert markers.middle is not None
    prompt = (markers.prefix, *tokenizer.encode(PREFIX), markers.suffix, markers.middle, *tokenizer.encode(increment))
    model = Parrot((*prompt, *tokenizer.encode(text)), min(markers.end))
    policy = EngineConfig(prefill_chunk=64, speculation=speculation)
    return Engine(EngineInfo("parrot", "none", 512, 3.0), model, tokenizer, store_without_room(), policy), model


def test_asking_again_is_one_forward_for_as_much_as_fits_into_it(tiny_tokenizer: TextTokenizer) -> None:
    engine, model = parrot(tiny_tokenizer, "x = 1; ", LINE)
    first = engine.complete(ask("x = 1; "))
    assert first.text == LINE
    model.forwards.clear()
    again = engine.complete(ask("x = 1; "))
    assert (again.text, again.finish_reason, again.mean_logprob) == (first.text, first.finish_reason, first.mean_logprob)
    assert model.forwards[0] == SHORT_TOKENS
    assert len(model.forwards) == again.usage.forwards == -(-(len(tiny_tokenizer.encode(LINE)) + 1) // SHORT_TOKENS)
    assert again.usage.recomputed_tokens == 1


def test_each_right_guess_saves_a_forward(tiny_tokenizer: TextTokenizer) -> None:
    text = LINE + "\n" + LINE
    plain, _ = parrot(tiny_tokenizer, "y", text, speculation=False)
    guessing, model = parrot(tiny_tokenizer, "y", text)
    expected, answer = plain.complete(ask("y", 80)).usage, guessing.complete(ask("y", 80)).usage
    assert (expected.drafted_tokens, expected.accepted_tokens) == (0, 0)
    assert 0 < answer.accepted_tokens <= answer.drafted_tokens
    assert answer.forwards == expected.forwards - answer.accepted_tokens == len(model.forwards)
    assert answer.generated_tokens == expected.generated_tokens


def test_guesses_end_with_the_limit_and_the_line(tiny_tokenizer: TextTokenizer) -> None:
    engine, model = parrot(tiny_tokenizer, "z = 1; ", LINE + "\n" + LINE)
    for request in (ask("z = 1; ", 80), ask("z = 1; ", 5), ask("z = 1; ", 80, StopRule())):
        engine.complete(request)
        model.forwards.clear()
        answer = engine.complete(request)
        room = min(request.max_tokens, len(tiny_tokenizer.encode(LINE)) + 1 if request.stop == StopRule() else 80)
        assert sum(model.forwards) <= room
        assert answer.usage.generated_tokens <= request.max_tokens


def test_a_wrong_guess_leaves_nothing_behind(tiny_tokenizer: TextTokenizer) -> None:
    engine, model = parrot(tiny_tokenizer, "a = 1; ", LINE)
    memory = engine._histories.of(session_key("a.py"))
    memory.remember(PREFIX + "a = 1; ", "print(path, 'and then something else entirely')", packed())
    answer = engine.complete(ask("a = 1; "))
    assert answer.text == LINE
    assert 0 < answer.usage.accepted_tokens < answer.usage.drafted_tokens
    resident = tuple(last_slot(engine).token_ids)
    assert resident == model.document[: len(resident)]


@pytest.mark.parametrize("alternatives", [0, 2])
def test_what_was_suggested_elsewhere_is_guessed_too(tiny_tokenizer: TextTokenizer, alternatives: int) -> None:
    engine, _ = parrot(tiny_tokenizer, "b = 1; ", LINE)
    first = engine.complete(structs.replace(ask("b = 1; "), alternatives=alternatives))
    suggested = engine._histories.of(session_key("a.py")).suggested
    assert suggested.token_ids == tiny_tokenizer.encode(LINE)
    assert suggested.rest_after(PREFIX + "c = 2; ") == ""
    assert engine.complete(ask("c = 2; ")).usage.forwards < first.usage.forwards


def test_what_a_cancelled_request_had_is_guessed_next(tiny_tokenizer: TextTokenizer) -> None:
    engine, model = parrot(tiny_tokenizer, "b = 1; ", LINE)
    assert complete_cancelled(engine, ask("b = 1; "), 12).finish_reason == "cancelled"
    model.forwards.clear()
    engine.complete(ask("b = 1; "))
    assert model.forwards[0] > 4


def test_a_text_that_is_copied_with_a_change_needs_few_forwards(tiny_tokenizer: TextTokenizer) -> None:
    old = "".join(f"value_{number} = compute({number * 7919})\n" for number in range(12))
    new = old.replace("value_6", "total")
    forwards = []
    for copies in (old, ""):
        engine, _ = parrot(tiny_tokenizer, "", new)
        completion = engine.complete(structs.replace(ask("", 400), copies=copies))
        assert completion.text == new.rstrip("\n") or completion.text == new
        forwards.append(completion.usage.forwards)
    assert forwards[0] * 5 < len(tiny_tokenizer.encode(new))
    assert forwards[0] * 2 < forwards[1]


def test_a_prompt_with_markers_among_its_texts_is_answered_like_the_same_tokens(tiny_tokenizer: TextTokenizer) -> None:
    fim = tiny_tokenizer.format
    parts = ("", fim.prefix, PREFIX, fim.suffix, "", fim.middle, "x = 1; ")
    engine, _ = parrot(tiny_tokenizer, "x = 1; ", LINE)
    completion = engine.complete(structs.replace(ask(""), prompt=Prompt("", "", marked=parts)))
    again = engine.complete(ask("x = 1; "))
    assert completion.text == again.text == LINE
    assert again.usage.recomputed_tokens == 1  # the KV is that of the same tokens


WORDS = ["def ", "main", "(", ")", ":\n", "    ", "return", " x", "\n", "'é'", "1", "self.", "value"]


@pytest.mark.parametrize("changes", [{}, {"kernel": False}, {"healing": "on"}, {"dtype": "bfloat16"}], ids=str)
def test_no_text_changes(tmp_path_factory: pytest.TempPathFactory, changes: dict[str, object]) -> None:
    """Typing, deleting, asking again and accepting, single lines and blocks, with and without guesses."""
    folder = write_checkpoint(tmp_path_factory.mktemp("m"), hidden_size=64, num_attention_heads=2, num_key_value_heads=1)
    options = EngineOptions(str(folder), **{"dtype": "float32", "context_tokens": 512, "threads": 1, **changes})  # type: ignore[arg-type]
    guessing, plain = load_engine(options), load_engine(replace(options, speculation=False))
    accepted = 0

    @settings(max_examples=settings.default.max_examples // 12, deadline=None)
    @given(seed=st.integers(0, 2**32 - 1))
    def check(seed: int) -> None:
        nonlocal accepted
        rng = random.Random(seed)
        text = ""
        for _ in range(8):
            text = text[: rng.randint(len(text) // 2, len(text))] if rng.random() < 0.3 else text
            text += "".join(rng.choices(WORDS, k=rng.randint(0, 3)))
            request = ask(text[:200], rng.choice([1, 6, 20]), rng.choice([BLOCK, StopRule()]), session=str(seed))
            request = structs.replace(request, alternatives=rng.choice([0, 0, 0, 2]), best_of=rng.choice([1, 1, 3]))
            answer, expected = guessing.complete(request), plain.complete(request)
            assert (answer.text, answer.finish_reason) == (expected.text, expected.finish_reason)
            assert answer.alternatives == expected.alternatives
            assert answer.mean_logprob == pytest.approx(expected.mean_logprob, abs=1e-4)
            accepted += answer.usage.accepted_tokens
            check_integrity(guessing)
            if rng.random() < 0.3:
                text += answer.text

    check()
    assert accepted > 0
