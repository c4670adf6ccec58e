from __future__ import annotations

import pytest

from inference.engine.request_cost import RequestCost
from protocol.messages import Alternative


def test_an_answer_tells_what_it_has_cost() -> None:
    cost = RequestCost(100, recomputed_tokens=7, forwards=5, drafted_tokens=4, accepted_tokens=2, logprobs=[-0.5, -1.5])
    cost.prepared = cost.started + 0.125
    cost.prefilled = cost.prepared + 0.25
    other = Alternative("other", "length")
    completion = cost.completion("text", "stop", (other,))
    assert (completion.text, completion.finish_reason, completion.alternatives) == ("text", "stop", (other,))
    assert completion.mean_logprob == pytest.approx(-1.0)
    usage = completion.usage
    assert (usage.prompt_tokens, usage.recomputed_tokens, usage.generated_tokens, usage.forwards) == (100, 7, 2, 5)
    assert (usage.drafted_tokens, usage.accepted_tokens) == (4, 2)
    assert (usage.prepare_ms, usage.prefill_ms) == pytest.approx((125, 250))


def test_what_was_never_prefilled_was_never_decoded() -> None:
    completion = RequestCost(100).completion("", "cancelled")
    assert completion.mean_logprob is None
    assert (completion.usage.decode_ms, completion.usage.generated_tokens) == (0.0, 0)


def test_alternatives_count_but_not_for_the_probability() -> None:
    cost = RequestCost(100, recomputed_tokens=1, forwards=1, logprobs=[-1.0])
    cost.add(
        RequestCost(100, recomputed_tokens=2, forwards=3, drafted_tokens=5, accepted_tokens=4, logprobs=[-9.0] * 5),
        known=3,
    )
    completion = cost.completion("text", "eos")
    usage = completion.usage
    assert (usage.recomputed_tokens, usage.forwards, usage.generated_tokens) == (1, 4, 3)
    assert (usage.drafted_tokens, usage.accepted_tokens) == (5, 4)
    assert completion.mean_logprob == -1.0
