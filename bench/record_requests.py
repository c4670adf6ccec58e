"""Records the requests that an editor sends to the core during a recorded editing session.

    python bench/record_requests.py [--model tiny] [--output FILE]

The language server's own parts play the session on an engine that computes nothing. The file, JSON compressed by xz,
is for programs that measure an engine without the language server: `read_requests` of `bench/proof/requests_file.py`
reads it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from unittest.mock import patch

import typer
from playing import TRACE
from proof.requests_file import RECORDED, write_requests

from inference.engine.engine import Engine
from inference.loading.engine import load_dry_engine
from inference.loading.options import EngineOptions
from midfill.replay.player import EngineTarget
from midfill.replay.trace import play, read_trace, text_at
from protocol.messages import Completion, CompletionRequest
from protocol.settings import Settings

MAX_NEW_TOKENS = 24
CONTEXT_TOKENS = 8192


async def record(
    model: str, trace: Path, settings: Settings, most: int | None = None, language: str = "rust"
) -> list[CompletionRequest]:
    """The requests in their order, until there are `most` for suggestions; prefetches have `max_tokens=0`."""
    session = read_trace(trace)
    engine = load_dry_engine(EngineOptions(model, context_tokens=CONTEXT_TOKENS))
    target = EngineTarget(engine, settings, language, text_at(session, 0))
    requests: list[CompletionRequest] = []
    suggestions = 0

    def complete(request: CompletionRequest) -> Completion:
        nonlocal suggestions
        requests.append(request)
        suggestions += request.max_tokens > 0
        return Engine.complete(engine, request)

    with patch.object(engine, "complete", complete):
        for step in play(session):
            await target.play(step, announce_move=True)
            if most is not None and suggestions >= most:
                break
    return requests


def main(
    model: Annotated[str, typer.Option(help="Model whose tokenizer counts, as for `midfill lsp`.")] = "tiny",
    trace: Annotated[Path, typer.Option(help="A recorded editing session.")] = TRACE,
    output: Annotated[Path, typer.Option(help="File for the requests.")] = RECORDED,
    most: Annotated[int | None, typer.Option(help="Suggestions to request; all by default.")] = None,
) -> None:
    """Record the requests, and print how many there are."""
    settings = replace(Settings(shorten_unlikely=False), max_tokens=MAX_NEW_TOKENS)
    requests = asyncio.run(record(model, trace, settings, most))
    write_requests(output, requests)
    prefetches = sum(not request.max_tokens for request in requests)
    print(f"{len(requests) - prefetches} requests for suggestions, {prefetches} prefetches: {output.stat().st_size} bytes")


if __name__ == "__main__":
    typer.run(main)
