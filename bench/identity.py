"""Checks that speculation, batching and the CPU kernel change no text: computes the same requests in every way.

    python bench/identity.py [--model tiny] [--requests 1000] [--json FILE]

The requests are those of four simulated users who edit as the trace does, each with prompt windows of another size and
a document of their own. The reference is the kernel without drafts and without batching. With the kernel, texts must
be equal, and probabilities equal to the last bit; otherwise the command fails. Torch alone sums in another order, so
near-ties may be decided differently: the bench counts such texts, and prints the largest difference of a mean
log-probability among equal texts.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import typer
from figures import JsonFile, write
from msgspec import structs
from rich.console import Console

from inference.backends.cpu.library import unavailable_reason
from inference.engine.engine import Engine
from inference.engine.request import Request
from inference.loading.engine import load_dry_engine, load_engine
from inference.loading.options import EngineOptions
from midfill.replay.targets import EngineTarget
from midfill.replay.trace import play, read_trace, text_at
from protocol.messages import Completion, CompletionRequest
from protocol.settings import Settings

TRACE = Path(__file__).parents[1] / "tests" / "data" / "rustcode-3000-3400.json.gz"
WINDOWS = ((2048, 1024), (1024, 512), (512, 256), (256, 128))  # tokens of prefix and suffix, one pair per user
MAX_NEW_TOKENS = 24
REFERENCE = "kernel"

ROW = "{:19}{:>6}{:>7}{:>10}{:>9}{:>8}{:>9}{:>7}"
HEADINGS = ("computed by", "texts", "differ", "logprobs", "forwards", "drafted", "accepted", "s")

Answers = dict[tuple[int, int], Completion]  # by user and index among the user's requests


@dataclass(frozen=True, slots=True)
class Way:
    """A way to compute the requests."""

    name: str
    options: Mapping[str, Any]
    at_once: int = 1  # users that are served together

    @property
    def is_exact(self) -> bool:
        """Whether every bit must equal the reference's."""
        return bool(self.options.get("kernel", True))


WAYS = (
    Way(REFERENCE, {"speculation": False}),
    Way("kernel, speculation", {}),
    Way("kernel, batching", {"speculation": False}, len(WINDOWS)),
    Way("kernel, both", {}, len(WINDOWS)),
    Way("torch", {"kernel": False, "speculation": False}),
    Way("torch, both", {"kernel": False}, len(WINDOWS)),
)


async def record(model: str, trace: Path, user: int, count: int) -> list[CompletionRequest]:
    """The first `count` requests of one user for suggestions; fewer if the trace ends before."""
    session = read_trace(trace)
    prefix_tokens, suffix_tokens = WINDOWS[user]
    settings = replace(
        Settings(shorten_unlikely=False),  # texts go on to their ends
        max_tokens=MAX_NEW_TOKENS,
        prefix_tokens=prefix_tokens,
        suffix_tokens=suffix_tokens,
    )
    engine = load_dry_engine(EngineOptions(model, context_tokens=8192))
    target = EngineTarget(engine, settings, "rust", text_at(session, 0))
    requests: list[CompletionRequest] = []

    def complete(request: CompletionRequest) -> Completion:
        if request.max_tokens > 0:  # not ahead work, which gets no turn between keystrokes without a pause
            requests.append(structs.replace(request, session=f"user {user}"))
        return Engine.complete(engine, request)

    with patch.object(engine, "complete", complete):
        for step in play(session, 0, None):
            await target.play(step, tell_move=True)
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
                place, spec = left.popleft()
                request = Request(spec)
                engine.begin(request)
                at_work[request] = user, place, left
        forwards += any(not run.has_ended for run in at_work)
        engine.step()
        for run in [run for run in at_work if run.has_ended]:
            user, place, left = at_work.pop(run)
            answers[user, place] = run.completion()
            idle.append((user, left))
    return answers, forwards


def measure(
    way: Way, model: str, users: Sequence[Sequence[CompletionRequest]], reference: Answers | None
) -> tuple[dict[str, Any], Answers]:
    """Compute all requests in one way, and compare them with the reference; without one, with themselves.

    `logprob_distance` is the largest between mean log-probabilities of equal texts.
    """
    engine = load_engine(
        EngineOptions(model, context_tokens=8192, dtype="float32", slots=len(users), healing="off", **way.options)
    )
    started = time.perf_counter()
    answers, forwards = compute(engine, users, way.at_once)
    seconds = time.perf_counter() - started
    engine.close()
    pairs = [(answer, (reference or answers)[key]) for key, answer in answers.items()]
    same = [
        (ours, theirs)
        for ours, theirs in pairs
        if (ours.text, ours.finish_reason) == (theirs.text, theirs.finish_reason)
    ]
    distances = (abs((ours.mean_logprob or 0) - (theirs.mean_logprob or 0)) for ours, theirs in same)
    figures = {
        "way": way.name,
        "texts": len(pairs),
        "differing": len(pairs) - len(same),
        "logprob_distance": max(distances, default=0.0),
        "forwards": forwards,
        "drafted_tokens": sum(answer.usage.drafted_tokens for answer in answers.values()),
        "accepted_tokens": sum(answer.usage.accepted_tokens for answer in answers.values()),
        "seconds": round(seconds, 1),
    }
    return figures, answers


def main(
    model: Annotated[str, typer.Option(help="Model, as for `midfill lsp`.")] = "tiny",
    trace: Annotated[Path, typer.Option(help="A recorded editing session.")] = TRACE,
    requests: Annotated[int, typer.Option(help="Maximum number of suggestions to request.")] = 1000,
    json_file: JsonFile = None,
) -> None:
    """Compare the texts of every way of computing."""
    if (reason := unavailable_reason()) is not None:
        raise SystemExit(f"this benchmark needs the CPU kernel: {reason}")
    each = -(-requests // len(WINDOWS))
    users = [asyncio.run(record(model, trace, user, each)) for user in range(len(WINDOWS))]
    results = []
    reference: Answers | None = None
    console = Console()
    console.print(ROW.format(*HEADINGS))
    for way in WAYS:
        figures, answers = measure(way, model, users, reference)
        reference = reference or answers
        results.append(figures)
        name, *numbers = figures.values()
        console.print(ROW.format(name, *(f"{number:g}" for number in numbers)))
    write(json_file, results)
    exact = {way.name for way in WAYS if way.is_exact}
    if any(figures["differing"] or figures["logprob_distance"] for figures in results if figures["way"] in exact):
        sys.exit("speculation or batching changed the kernel's results")


if __name__ == "__main__":
    typer.run(main)
