from __future__ import annotations

import pytest

from inference.engine.request import Cost, Request
from protocol.errors import Busy, Cancelled, MidfillError
from protocol.messages import Alternative, Completion, CompletionRequest, Prompt, Usage

SPEC = CompletionRequest("a.py", Prompt("", ""), max_tokens=2)
COMPLETION = Completion("x", "stop", Usage(1, 1, 1, 1, 0.0, 0.0, 0.0))


def test_an_answer_tells_what_it_has_cost() -> None:
    cost = Cost(100, recomputed_tokens=7, generated_tokens=2, forwards=5, drafted_tokens=4, accepted_tokens=2)
    cost.prepared = cost.started + 0.125
    cost.prefilled = cost.prepared + 0.25
    other = Alternative("other", "length")
    completion = cost.completion("text", "stop", -1.0, (other,))
    assert (completion.text, completion.finish_reason, completion.alternatives) == ("text", "stop", (other,))
    assert completion.mean_logprob == pytest.approx(-1.0)
    usage = completion.usage
    assert (usage.prompt_tokens, usage.recomputed_tokens, usage.generated_tokens, usage.forwards) == (100, 7, 2, 5)
    assert (usage.drafted_tokens, usage.accepted_tokens) == (4, 2)
    assert (usage.prepare_ms, usage.prefill_ms) == pytest.approx((125, 250))


def test_what_was_never_prefilled_was_never_decoded() -> None:
    completion = Cost(100).completion("", "cancelled")
    assert completion.mean_logprob is None
    assert (completion.usage.decode_ms, completion.usage.generated_tokens) == (0.0, 0)


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (COMPLETION, "completed"),
        (Busy("full"), "refused"),
        (Cancelled("by a newer one"), "cancelled"),
        (MidfillError("the core failed"), "failed"),
    ],
)
def test_a_request_is_counted_by_its_outcome(outcome: Completion | MidfillError, result: str) -> None:
    request = Request(SPEC, outcome=outcome)
    assert request.has_ended
    assert request.result == result


def test_the_requests_of_a_session_have_one_key_unless_they_supersede_nothing() -> None:
    assert Request(SPEC, "a").key == Request(SPEC, "a").key != Request(SPEC, "b").key
    assert len({Request(SPEC, "a").key, *(each.key for each in [Request(SPEC, "a", supersedes=False)] * 2)}) == 2
    two = Request(SPEC, "a", supersedes=False), Request(SPEC, "a", supersedes=False)
    assert two[0].key != two[1].key


def test_one_that_begins_again_has_cost_nothing_so_far() -> None:
    reported = list[tuple[int, str]]()
    request = Request(SPEC, changed=lambda request: reported.append((request.prefilled, request.text)))
    request.report_prefill(256)
    request.report_text("x")
    request.cost.forwards += 1
    request.outcome = COMPLETION
    request.start()
    assert (request.prefilled, request.text, request.cost.forwards, request.has_ended) == (0, "", 0, False)
    assert reported == [(256, ""), (256, "x")]
