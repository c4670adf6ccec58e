from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from safetensors.torch import load_file, save_file

from inference.backends.model import Choice, Chunk, DryModel
from inference.engine.engine import Engine, EngineConfig
from inference.engine.interface import EngineInfo
from inference.loading.engine import load_dry_engine, load_engine
from inference.loading.options import EngineOptions
from inference.text.prompts import tokenize_prompt
from inference.text.token_ids import TokenIds, common_prefix_length
from inference.text.tokenization import TextTokenizer
from kv_store.interface import DryWorkspace
from protocol.errors import BadModel
from protocol.messages import CompletionRequest, Prompt, Sampling, Snippet, StopRule
from tests.inference.requests import begin, complete_cancelled, finish
from tests.inference.slots import store_without_room
from tests.inference.tiny import write_checkpoint
from tests.inference.tiny_gguf import KERNEL_SHAPE
from tests.kv_store.integrity import check_integrity

ANY_TEXT = StopRule(indent=0)  # a block that nothing dedents from
PREFIX = "import os\n\n\ndef size_of(path):\n    return os.stat(path).st_size\n\n\n"
SUFFIX = "\n\nif __name__ == '__main__':\n    main()\n"


def ask(
    increment: str = "", *, session: str = "a.py", max_tokens: int = 8, prefix: str = PREFIX, reuse: bool = True
) -> CompletionRequest:
    prompt = Prompt(prefix=prefix, suffix=SUFFIX, increment=increment)
    return CompletionRequest(session, prompt, max_tokens, stop=ANY_TEXT, reuse=reuse)


def cold(request: CompletionRequest) -> CompletionRequest:
    return structs.replace(request, reuse=False)


def token_ids_of(engine: Engine, request: CompletionRequest) -> TokenIds:
    context = engine.info.context_tokens
    return tokenize_prompt(request.prompt, engine.tokenizer, context, request.max_tokens).token_ids


@pytest.fixture(scope="module")
def options(tiny_checkpoint: Path) -> EngineOptions:
    return EngineOptions(model=str(tiny_checkpoint), context_tokens=512, prefill_chunk=32, threads=1)


@pytest.fixture
def engine(options: EngineOptions) -> Engine:
    return load_engine(options)


@pytest.fixture(scope="module")
def oracle(options: EngineOptions) -> Callable[[CompletionRequest], str]:
    engine = load_engine(options)
    return lambda request: engine.complete(cold(request)).text


@pytest.mark.parametrize("disk", [False, True])
def test_what_is_resident_is_freed(options: EngineOptions, tmp_path: Path, disk: bool) -> None:
    """Without `disk` it is saved first, so that the next prompt is warm."""
    engine = load_engine(replace(options, cache_folder=tmp_path, slots=2))
    for session in ("a.py", "b.py"):
        usage = engine.complete(ask("def main", session=session, prefix=f"# {session}\n{PREFIX}")).usage
    assert (engine.stats().workspaces, engine.info.weights_bytes > 0) == (2, True)
    engine.free(disk=disk)
    check_integrity(engine)
    stats = engine.stats()
    assert stats.workspaces == 1
    assert stats.workspaces_bytes > 0
    tokens = {tier.name: tier.tokens for tier in stats.tiers}
    assert tokens["device"] == 0
    assert (tokens["disk"] > 0) == (not disk)
    again = engine.complete(ask("def main", session="b.py", prefix=f"# b.py\n{PREFIX}")).usage
    assert again.recomputed_tokens == (usage.prompt_tokens if disk else 1)
    engine.close()


def test_first_request_computes_the_whole_prompt(engine: Engine) -> None:
    usage = engine.complete(ask("def main")).usage
    assert usage.recomputed_tokens == usage.prompt_tokens
    assert usage.forwards + usage.accepted_tokens == -(-usage.prompt_tokens // 32) + usage.generated_tokens - 1
    assert usage.generated_tokens == 8


def test_keystrokes_recompute_what_was_typed(engine: Engine, oracle: Callable[[CompletionRequest], str]) -> None:
    typed = "def main():\n    print(size_of('a'))"
    engine.complete(ask(max_tokens=0))
    for end in range(1, len(typed) + 1):
        now, before = ask(typed[:end]), ask(typed[: end - 1])
        completion = engine.complete(now)
        resident = common_prefix_length(token_ids_of(engine, now)[:-1], token_ids_of(engine, before))
        assert completion.usage.recomputed_tokens <= completion.usage.prompt_tokens - resident
        assert completion.usage.recomputed_tokens <= 4
        assert completion.text == oracle(now)


def test_a_prefetch_leaves_only_the_typed_character(engine: Engine) -> None:
    prefetch = engine.complete(ask(max_tokens=0))
    assert (prefetch.text, prefetch.finish_reason, prefetch.mean_logprob) == ("", "length", None)
    assert prefetch.usage.recomputed_tokens == prefetch.usage.prompt_tokens
    assert engine.complete(ask("x")).usage.recomputed_tokens == 1
    again = engine.complete(ask("x", max_tokens=0))
    assert (again.usage.recomputed_tokens, again.usage.forwards, again.finish_reason) == (0, 0, "length")


def test_a_prefetched_prompt_is_saved_before_a_key_displaces_it(engine: Engine) -> None:
    def saved_tokens() -> int:
        return engine.stats().tiers[0].tokens

    prefetch = engine.complete(ask("def main", max_tokens=0))
    assert saved_tokens() == prefetch.usage.prompt_tokens
    engine.complete(ask("class A", prefix="import sys\n" * 10))
    assert saved_tokens() == prefetch.usage.prompt_tokens  # there was nothing left to save
    assert engine.complete(ask("def main")).usage.recomputed_tokens == 1


def test_a_prefetch_is_saved_chunk_by_chunk_until_it_is_cancelled(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def saved_tokens() -> int:
        return engine.stats().tiers[0].tokens

    request = begin(engine, ask(prefix=PREFIX * 3, max_tokens=0))
    engine.step()
    assert saved_tokens() == 32
    forward = engine._model.forward

    def cancelled_meanwhile(chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        request.cancelled = True
        return forward(chunks)

    monkeypatch.setattr(engine._model, "forward", cancelled_meanwhile)
    engine.step()
    assert saved_tokens() == 32
    assert engine.step()[0].completion().finish_reason == "cancelled"


def test_accepted_suggestion_is_resident(tiny_tokenizer: TextTokenizer) -> None:
    engine = scripted(tiny_tokenizer, [" f(x):\n    return x"])
    suggestion = engine.complete(ask("def", max_tokens=60)).text
    assert suggestion == " f(x):\n    return x"
    assert engine.complete(ask("def" + suggestion)).usage.recomputed_tokens == 1


def test_alternatives_branch_from_one_resident_prompt(engine: Engine, options: EngineOptions) -> None:
    request = ask("x = ")
    alone = engine.complete(request)
    engine.complete(structs.replace(request, max_tokens=0))
    several = engine.complete(structs.replace(request, alternatives=3))
    texts = (several.text, *(other.text for other in several.alternatives))
    assert (several.text, several.finish_reason) == (alone.text, alone.finish_reason)
    assert several.mean_logprob == pytest.approx(alone.mean_logprob)
    assert 2 <= len(set(texts)) == len(texts) <= 4
    assert several.usage.recomputed_tokens == 1  # the prompt's last token, though each text begins with it
    assert several.usage.forwards > alone.usage.forwards
    assert several.usage.generated_tokens > alone.usage.generated_tokens
    accepted = ask("x = " + several.text)
    plain = load_engine(options)
    plain.complete(request)
    # The suggestion is as resident as ever.
    assert engine.complete(accepted).usage.recomputed_tokens == plain.complete(accepted).usage.recomputed_tokens


@pytest.mark.parametrize(
    ("increment", "alternatives"), [("", 2), ("x = ", 5), ("def main():\n    return si", 0), ("class A:\n    def f", 2)]
)
def test_alternatives_leave_right_kv_behind(
    engine: Engine, oracle: Callable[[CompletionRequest], str], increment: str, alternatives: int
) -> None:
    asked = structs.replace(ask(increment, max_tokens=24), alternatives=alternatives, best_of=1 + alternatives)
    hit = engine.complete(asked)
    cold = engine.complete(structs.replace(asked, reuse=False))
    assert (hit.text, hit.alternatives) == (cold.text, cold.alternatives)
    engine.complete(asked)
    for text in (hit.text, *(other.text for other in hit.alternatives), ""):
        typed = ask(increment + text[: len(text) // 2 + 1], max_tokens=24)
        assert engine.complete(typed).text == oracle(typed)
    check_integrity(engine)


def test_alternatives_of_a_cancelled_request(engine: Engine) -> None:
    request = structs.replace(ask("x = "), alternatives=2)
    for forwards in range(12):
        completion = complete_cancelled(engine, request, forwards)
        assert completion.finish_reason == "cancelled"
    check_integrity(engine)
    assert engine.complete(request).finish_reason != "cancelled"


def test_cold_requests_reuse_nothing_and_leave_what_was_resident(engine: Engine) -> None:
    long = ask("def main():\n    return size_of('somewhere')")
    engine.complete(long)
    first = engine.complete(cold(ask("class A")))
    assert first.usage.recomputed_tokens == first.usage.prompt_tokens
    assert engine.complete(long).usage.recomputed_tokens == 1


@pytest.mark.parametrize("allowed_forwards", [0, 1, 2, 5])
def test_cancelled_request_keeps_what_it_had(
    engine: Engine, oracle: Callable[[CompletionRequest], str], allowed_forwards: int
) -> None:
    request = ask("def main")
    cancelled = complete_cancelled(engine, request, allowed_forwards)
    assert cancelled.finish_reason == "cancelled"
    assert cancelled.usage.forwards == allowed_forwards
    again = engine.complete(request)
    assert again.usage.recomputed_tokens == max(1, again.usage.prompt_tokens - cancelled.usage.recomputed_tokens)
    assert again.text == oracle(request)


def test_text_ends_at_the_newline(tiny_tokenizer: TextTokenizer) -> None:
    script = ["return 1", "\n", "x = 2"]
    line = scripted(tiny_tokenizer, script).complete(structs.replace(ask("x", max_tokens=60), stop=StopRule()))
    assert (line.text, line.finish_reason) == ("return 1", "stop")
    whole = scripted(tiny_tokenizer, script).complete(ask("x", max_tokens=60))
    assert (whole.text, whole.finish_reason) == ("return 1\nx = 2", "eos")


def test_broken_utf8_ends_the_text(tiny_tokenizer: TextTokenizer) -> None:
    first_byte = tiny_tokenizer.encode("é")[:1]
    completion = scripted(tiny_tokenizer, ["a", first_byte, "b"]).complete(ask("x", max_tokens=60))
    assert (completion.text, completion.finish_reason) == ("a", "stop")
    completion = scripted(tiny_tokenizer, ["a", first_byte]).complete(ask("x", max_tokens=60))
    assert (completion.text, completion.finish_reason) == ("a", "eos")


def test_marker_ends_the_text(tiny_tokenizer: TextTokenizer) -> None:
    for marker in tiny_tokenizer.markers.end:
        completion = scripted(tiny_tokenizer, ["a = 1", (marker,), "b"]).complete(ask("x", max_tokens=60))
        assert (completion.text, completion.finish_reason) == ("a = 1", "eos")


class ScriptedModel(DryModel):
    """Says what it is told to, token by token after the prompt, and then ends."""

    def __init__(self, token_ids: Iterable[int], end_token: int) -> None:
        super().__init__(lambda: DryWorkspace(bytes_per_token=4), context_tokens=512, end_token=end_token)
        self._script = tuple(token_ids)
        self._begins_at: int | None = None

    def forward(self, chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        (chunk,) = chunks
        if chunk.wanted and self._begins_at is None:
            self._begins_at = chunk.stop - chunk.wanted + 1
        return [tuple(map(self._after, range(chunk.stop - chunk.wanted + 1, chunk.stop + 1)))]

    def _after(self, position: int) -> Choice:
        assert self._begins_at is not None
        place = position - self._begins_at
        return Choice(self._script[place], -0.5) if place < len(self._script) else self._end


def scripted(tokenizer: TextTokenizer, script: Iterable[str | tuple[int, ...]]) -> Engine:
    parts = [tokenizer.encode(part) if isinstance(part, str) else part for part in script]
    model = ScriptedModel(itertools.chain(*parts), min(tokenizer.markers.end))
    info = EngineInfo("scripted", "none", 512, 3.0)
    return Engine(info, model, tokenizer, store_without_room(), EngineConfig(prefill_chunk=32))


def test_context_and_order_are_part_of_the_prompt(engine: Engine, oracle: Callable[[CompletionRequest], str]) -> None:
    chunk = Snippet("other.py", "def helper():\n    pass\n")
    for order in ("psm", "spm"):
        request = ask("x")
        request = structs.replace(request, prompt=structs.replace(request.prompt, context=(chunk,), order=order))
        assert engine.complete(request).text == oracle(request)


def test_dry_engine_counts_what_the_real_one_does(options: EngineOptions, engine: Engine) -> None:
    dry = load_dry_engine(options)
    for increment in ("", "d", "de", "def", "def m", "class A:\n    pass", "de"):
        real, counted = engine.complete(ask(increment, max_tokens=1)), dry.complete(ask(increment, max_tokens=1))
        assert counted.text == ""
        assert counted.usage.recomputed_tokens == real.usage.recomputed_tokens
        assert counted.usage.prompt_tokens == real.usage.prompt_tokens


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("fields", [{}, {"sampling": Sampling(1.0)}, {"best_of": 3}, {"alternatives": 2, "token_logprobs": True}])
def test_a_model_whose_probabilities_are_no_numbers_is_named(tmp_path: Path, kernel: bool, fields: dict[str, Any]) -> None:
    folder = write_checkpoint(tmp_path / "broken", **KERNEL_SHAPE)
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.1.input_layernorm.weight"][3] = math.nan
    save_file(weights, folder / "model.safetensors")
    engine = load_engine(EngineOptions(str(folder), device="cpu", dtype="float32", threads=1, kernel=kernel))
    with pytest.raises(BadModel, match=rf"^{folder} computes probabilities that are no numbers"):
        engine.complete(structs.replace(ask("def main"), **fields))


def test_numbers_that_are_none_end_the_request_that_they_belong_to(tiny_checkpoint: Path) -> None:
    engine = load_engine(EngineOptions(str(tiny_checkpoint), threads=1, slots=2))
    broken, whole = (begin(engine, ask("def main", session=name), name) for name in ("a.py", "b.py"))
    forward = engine._model.forward

    def half_broken(chunks: Sequence[Chunk]) -> list[tuple[Choice, ...]]:
        of_broken = {id(run.chunk) for run in engine._chunks.runs if run.request is broken}
        return [
            tuple(replace(choice, logprob=math.nan) for choice in choices) if id(chunk) in of_broken else choices
            for chunk, choices in zip(chunks, forward(chunks), strict=True)
        ]

    engine._model.forward = half_broken  # type: ignore[method-assign]
    finish(engine, whole)
    assert isinstance(broken.outcome, BadModel)
    assert whole.completion().text
    check_integrity(engine)
