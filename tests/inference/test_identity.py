"""Speculation, batching and the CPU kernel change no text of a recorded session, however its requests are computed.

`make test-identity` takes the model `tiny` and 1,000 requests, and prints what each way computed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import patch

import pytest
from msgspec import structs

from inference.backends.cpu.library import unavailable_reason
from inference.engine.engine import Engine
from inference.engine.request import Request
from inference.loading.engine import load_dry_engine, load_engine
from inference.loading.options import EngineOptions
from midfill.replay.player import EngineTarget
from midfill.replay.trace import play, read_trace, text_at
from protocol.messages import Completion, CompletionRequest
from protocol.settings import Settings
from tests.inference.requests import begin
from tests.inference.tiny import RECORDED, write_checkpoint

pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))

REQUESTS = int(os.environ.get("IDENTITY_REQUESTS", "0"))
WINDOWS = ((2048, 1024), (1024, 512), (512, 256), (256, 128))  # tokens of prefix and suffix, one pair per user
TORCH = {"kernel": False}
PLAIN = {"speculation": False}
WAYS = {  # options, and users that are served together; the first is the reference
    "kernel": (PLAIN, 1),
    "kernel, speculation": ({}, 1),
    "kernel, batching": (PLAIN, len(WINDOWS)),
    "kernel, both": ({}, len(WINDOWS)),
    "torch": (TORCH | PLAIN, 1),
    "torch, both": (TORCH, len(WINDOWS)),
}
Answers = dict[tuple[int, int], Completion]  # by user and index among the user's requests


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    if REQUESTS:
        return "tiny"
    shape = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}
    return str(write_checkpoint(tmp_path_factory.mktemp("model"), max_position_embeddings=8192, **shape))


async def record(model: str, user: int, count: int) -> list[CompletionRequest]:
    """The first `count` requests for suggestions of a user who edits as the session does."""
    session = read_trace(RECORDED)
    prefix_tokens, suffix_tokens = WINDOWS[user]
    whole = Settings(shorten_unlikely=False, max_tokens=24)
    engine = load_dry_engine(EngineOptions(model, context_tokens=8192))
    given = replace(whole, prefix_tokens=prefix_tokens, suffix_tokens=suffix_tokens)
    target = EngineTarget(engine, given, "rust", text_at(session, 0))
    requests: list[CompletionRequest] = []

    def complete(request: CompletionRequest) -> Completion:
        if request.max_tokens > 0:  # not prefetches
            requests.append(structs.replace(request, session=f"user {user}"))
        return Engine.complete(engine, request)

    with patch.object(engine, "complete", complete):
        for step in play(session, 0, None):
            await target.play(step, announce_move=True)
            if len(requests) >= count:
                break
    return requests[:count]


def compute(engine: Engine, users: Sequence[Sequence[CompletionRequest]], at_once: int) -> tuple[Answers, int]:
    """The answers to all requests, each user's one after another, and the number of forwards."""
    idle = deque((user, deque(enumerate(requests))) for user, requests in enumerate(users))
    at_work: dict[Request, tuple[int, int, deque[tuple[int, CompletionRequest]]]] = {}
    answers: Answers = {}
    forwards = 0
    while idle or at_work:
        while idle and len(at_work) < at_once:
            user, left = idle.popleft()
            if left:
                index, spec = left.popleft()
                at_work[begin(engine, spec)] = user, index, left
        forwards += any(not run.has_ended for run in at_work)
        engine.step()
        for run in [run for run in at_work if run.has_ended]:
            user, index, left = at_work.pop(run)
            answers[user, index] = run.completion()
            idle.append((user, left))
    return answers, forwards


@pytest.mark.timeout(3600)
async def test_every_way_of_computing_gives_the_same_texts(model: str) -> None:
    """The kernel's to the last bit of the probabilities; torch sums in another order, so a near tie may flip."""
    users = [await record(model, user, max(2, REQUESTS // len(WINDOWS))) for user in range(len(WINDOWS))]
    found: dict[str, tuple[Answers, int]] = {}
    for way, (options, at_once) in WAYS.items():
        given = EngineOptions(model, context_tokens=8192, dtype="float32", slots=len(users), healing="off", **options)
        engine = load_engine(given)
        found[way] = compute(engine, users, at_once)
        engine.close()
        answers, forwards = found[way]
        pairs = [(answer, found["kernel"][0][key]) for key, answer in answers.items()]
        differing = sum(ours.text != theirs.text for ours, theirs in pairs)
        alike = [(ours, theirs) for ours, theirs in pairs if ours.text == theirs.text]
        distance = max(abs((ours.mean_logprob or 0) - (theirs.mean_logprob or 0)) for ours, theirs in alike)
        print(f"{way:19} {len(pairs)} texts, {differing} differ, {distance:g} nats, {forwards} forwards")  # noqa: T201
        assert differing <= ("kernel" not in way) * len(pairs) // 250
        assert distance == 0.0 if "kernel" in way else 0.0 < distance < 1e-3
    forwards = {way: count for way, (_, count) in found.items()}
    assert sum(answer.usage.accepted_tokens for answer in found["kernel, both"][0].values()) > 0
    assert max(forwards["kernel, speculation"], forwards["kernel, batching"]) < forwards["kernel"]
    assert forwards["kernel, both"] <= forwards["kernel, batching"]  # equal if drafts shorten what ends early anyway
