"""Token healing on a tiny random model, and its cost on real vocabularies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference.backends.model import DryModel
from inference.checkpoints.checkpoint import find_checkpoint
from inference.engine.engine import Engine, EngineConfig
from inference.engine.interface import EngineInfo
from inference.loading.engine import load_engine
from inference.loading.options import EngineOptions
from inference.text.fim import FORMATS
from inference.text.healing import MOST_TYPED_BYTES, HealedIncrement, Healer, TypedBytes, wants_healing
from inference.text.prompts import tokenize_prompt
from inference.text.tokenization import TextTokenizer
from kv_store.interface import DryWorkspace
from protocol.errors import BadModel
from protocol.messages import CompletionRequest, Prompt, StopRule
from protocol.settings import TINY_MODEL
from tests.inference.requests import complete_cancelled
from tests.inference.slots import last_slot, store_without_room

PREFIX = "import os\n\n\ndef size_of(path):\n    return os.stat(path).st_size\n\n\n"
SUFFIX = "\n\nif __name__ == '__main__':\n    main()\n"
WORDS = ["def ", "main", "(", ")", ":\n", "    ", "ret", "urn", " x", "\n", "'é'", "中", "1", "sel", "_n", "😀"]
INCREMENTS = st.lists(st.sampled_from(WORDS), max_size=6).map("".join)
LINE = "    return self.compute_something(first_argument, 'café', 12) + other_value\n"


def ask(increment: str, *, reuse: bool = True, max_tokens: int = 4) -> CompletionRequest:
    return CompletionRequest("a.py", Prompt(PREFIX, SUFFIX, increment), max_tokens, StopRule(indent=0), reuse)


@pytest.fixture(scope="module")
def engines(tiny_checkpoint: Path) -> tuple[Engine, Engine, Engine]:
    """One that heals and stays warm, one that heals and is asked cold, and one that does not heal."""
    options = EngineOptions(str(tiny_checkpoint), dtype="float32", prefill_chunk=32, kernel=False, healing="on")
    return load_engine(options), load_engine(options), load_engine(replace(options, healing="off"))


def generated(engine: Engine, increment: str) -> bytes:
    """What all tokens after the stable prompt spell, the last of them excepted: it never went through the model."""
    stable = tokenize_prompt(ask(increment).prompt, engine.tokenizer, 1024, 8, Healer(engine.tokenizer))
    token_ids = last_slot(engine).token_ids[len(stable.token_ids) :]
    spelled = engine.tokenizer.text_tokens()
    return b"".join(spelled[token_id] for token_id in token_ids)


@settings(max_examples=20, deadline=None)
@given(increment=INCREMENTS)
def test_the_completion_begins_with_the_typed_bytes(engines: tuple[Engine, Engine, Engine], increment: str) -> None:
    engine = engines[0]
    completion = engine.complete(ask(increment, max_tokens=8))
    typed = Healer(engine.tokenizer).heal(increment).typed if increment else b""
    written = generated(engine, increment)
    shared = min(len(typed), len(written))
    assert written[:shared] == typed[:shared]
    after_typed = written[len(typed) :].decode(errors="ignore")
    assert completion.text.startswith(after_typed) or after_typed.startswith(completion.text)


@settings(max_examples=15, deadline=None)
@given(text=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map("".join), deleted=st.integers(0, 8))
def test_typing_and_deleting_is_as_cold_and_decodes_no_typed_token_twice(
    engines: tuple[Engine, Engine, Engine], text: str, deleted: int
) -> None:
    warm, cold, _ = engines
    ends = [*range(1, len(text) + 1), *range(len(text) - 1, max(0, len(text) - deleted), -1)]
    for key in [text[:end] for end in ends]:
        answer, expected = warm.complete(ask(key)), cold.complete(ask(key, reuse=False))
        assert answer.text == expected.text
        assert warm.complete(ask(key)).usage.recomputed_tokens <= 1  # all of it is known now


@settings(max_examples=20, deadline=None)
@given(increment=INCREMENTS)
def test_at_a_token_boundary_healing_changes_nothing(engines: tuple[Engine, Engine, Engine], increment: str) -> None:
    healing, _, plain = engines
    for stable in (increment + "1", increment.rstrip("\n") + " = 12"):
        assert Healer(healing.tokenizer).heal(stable).typed == b""
        ours, theirs = healing.complete(ask(stable)), plain.complete(ask(stable))
        assert (ours.text, ours.finish_reason) == (theirs.text, theirs.finish_reason)


def test_where_the_model_spells_it_as_the_tokenizer_does_healing_changes_nothing(engines: tuple[Engine, Engine, Engine]) -> None:
    healing, _, plain = engines
    compared = 0
    for end in range(1, len(LINE)):
        increment = LINE[:end]
        ours = healing.complete(ask(increment))
        healed = last_slot(healing).token_ids[ours.usage.prompt_tokens :]
        token_ids, stable = plain.tokenizer.encode_stable(increment)
        tail = token_ids[stable:]
        if healed[: len(tail)] == tail:
            assert ours.text == plain.complete(ask(increment)).text
            compared += 1
    assert compared > 0


def test_the_kernel_heals_too(tiny_checkpoint: Path, engines: tuple[Engine, Engine, Engine]) -> None:
    other = load_engine(EngineOptions(str(tiny_checkpoint), dtype="float32", healing="on"))
    for increment in ("def ma", "    retu", "x = 'caf"):
        assert other.complete(ask(increment)).text == engines[1].complete(ask(increment, reuse=False)).text


def dry_engine(tokenizer: TextTokenizer) -> Engine:
    model = DryModel(lambda: DryWorkspace(bytes_per_token=4), 1024, min(tokenizer.markers.end))
    info = EngineInfo("dry", "none", 1024, 3.0)
    return Engine(info, model, tokenizer, store_without_room(), EngineConfig(prefill_chunk=64), Healer(tokenizer))


def test_hits_stay_hits_on_real_vocabularies(real_tokenizer: TextTokenizer) -> None:
    """Typing a line: tokens pushed through the model per keystroke, those that spell what was typed among them."""
    engine = dry_engine(real_tokenizer)
    engine.complete(ask("", max_tokens=0))
    costs = [engine.complete(ask(LINE[:end])).usage.recomputed_tokens for end in range(1, len(LINE))]
    assert max(costs) <= 4
    assert sum(costs) / len(costs) <= 2.5
    for end in range(len(LINE) - 1, 0, -1):
        assert engine.complete(ask(LINE[:end])).usage.recomputed_tokens <= 4


def test_with_little_room_the_typed_bytes_still_fit(tiny_checkpoint: Path) -> None:
    engine = load_engine(EngineOptions(str(tiny_checkpoint), context_tokens=64, healing="on"))
    request = ask("x" * 30, max_tokens=16)
    engine.complete(request)
    assert len(last_slot(engine).token_ids) <= 64


def test_a_long_run_is_no_word_and_is_not_healed(tiny_tokenizer: TextTokenizer) -> None:
    healer = Healer(tiny_tokenizer)
    assert healer.heal("x" * MOST_TYPED_BYTES).typed == b"x" * MOST_TYPED_BYTES
    long = "x" * (MOST_TYPED_BYTES + 1)
    assert healer.heal(long) == HealedIncrement(tiny_tokenizer.encode(long), b"")


def test_cancelled_before_the_typed_bytes_are_spelled(engines: tuple[Engine, Engine, Engine]) -> None:
    completion = complete_cancelled(engines[0], ask("def ma_unlikely_word"), 1)
    assert (completion.text, completion.finish_reason) == ("", "cancelled")


@pytest.mark.parametrize(
    ("mode", "on_fragments", "otherwise"), [("auto", False, True), ("on", True, True), ("off", False, False)]
)
def test_by_default_models_that_fragments_do_not_suffice_for_are_healed(mode: str, on_fragments: bool, otherwise: bool) -> None:
    assert wants_healing(mode, FORMATS["midfill"]) == on_fragments  # type: ignore[arg-type]
    assert wants_healing(mode, FORMATS["qwen-coder"]) == otherwise  # type: ignore[arg-type]


def test_the_tiny_model_is_healed_since_its_config_asks_for_it() -> None:
    tiny = find_checkpoint(TINY_MODEL)
    assert tiny.tokenizer().format == replace(FORMATS["midfill"], fragments_suffice=False)
    assert wants_healing("auto", tiny.tokenizer().format)


def test_tokens_within_the_typed_bytes_are_told_from_those_beyond(tiny_tokenizer: TextTokenizer) -> None:
    typed = TypedBytes(b"si", Healer(tiny_tokenizer))
    (letter,), (word,) = tiny_tokenizer.encode("s"), tiny_tokenizer.encode("size")
    allowed = typed.allowed()
    assert allowed is not None
    assert {letter, word} <= set(allowed.tolist())
    assert typed.take(letter)
    assert typed.rest == b"i"
    (beyond,) = tiny_tokenizer.encode("in")
    assert not typed.take(beyond)
    assert typed.allowed() is None
    assert not typed.take(letter)


def test_vocabulary_that_cannot_spell_every_byte_is_refused(
    tiny_tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    spelled = {id_: token for id_, token in tiny_tokenizer.text_tokens().items() if token != b"e"}
    monkeypatch.setattr(tiny_tokenizer, "text_tokens", lambda: spelled)
    with pytest.raises(BadModel, match="needs a token for the single byte 0x65"):
        Healer(tiny_tokenizer)
