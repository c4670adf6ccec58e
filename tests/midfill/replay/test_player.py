from typing import Any

import pytest

from midfill.replay.player import SuggestionDiffers, Verifier
from protocol.messages import Completion, CompletionRequest, Prompt, Usage

USAGE = Usage(10, 1, 1, 1, 0.0, 0.0, 0.0)


class ColdEngine:
    """Says `x` to everything, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[CompletionRequest] = []

    def complete(self, request: CompletionRequest) -> Completion:
        self.asked.append(request)
        return Completion("x", "eos", USAGE)


def exchange(prefix: str, text: str = "x") -> tuple[CompletionRequest, Completion]:
    return CompletionRequest("s", Prompt(prefix, ""), 4), Completion(text, "eos", USAGE)


def verifier(count: int, total: int) -> tuple[Verifier, ColdEngine]:
    engine: Any = ColdEngine()
    return Verifier(engine, count, total), engine


def test_the_sample_is_spread_evenly_and_computed_without_reuse() -> None:
    checks, engine = verifier(2, 6)
    for number in range(6):
        if checks.wants(number):
            checks.check(exchange(str(number)))
    assert [(request.prompt.prefix, request.reuse) for request in engine.asked] == [("0", False), ("3", False)]


def test_a_step_at_which_nobody_was_asked_is_made_up_for() -> None:
    checks, engine = verifier(2, 4)
    for number, found in enumerate([exchange("a"), exchange("a"), exchange("a"), exchange("b")]):
        if checks.wants(number):
            checks.check(found)
    assert [request.prompt.prefix for request in engine.asked] == ["a", "b"]


def test_another_text_is_an_error_with_both() -> None:
    checks, _ = verifier(1, 1)
    assert checks.wants(0)
    with pytest.raises(SuggestionDiffers, match=r"with reuse 'y' .* cold 'x'"):
        checks.check(exchange("a", "y"))
