"""Drives the steps of one request, with a test in the place of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from inference.backends.model import Choice, Chunk
from inference.engine.chunk_scheduler import Run
from inference.engine.completing import SharedState, complete
from inference.engine.request import Request
from inference.text.prompts import tokenize_prompt
from inference.text.token_ids import TokenIds
from protocol.messages import CompletionRequest, Prompt, StopRule

REQUEST = CompletionRequest("a.py", Prompt("import os\n" * 12, "\n", "x ="), 5, StopRule(indent=4))
CONTEXT, CHUNK = 512, 16


def prompt_ids(shared: SharedState, request: CompletionRequest) -> TokenIds:
    return tokenize_prompt(request.prompt, shared.tokenizer, CONTEXT, request.max_tokens).token_ids


def drive(
    request: CompletionRequest | Request, shared: SharedState, says: Callable[[Chunk], Sequence[int | Choice]]
) -> tuple[Request, list[Chunk]]:
    """Answer every chunk with the tokens that `says` gives for it; the request that has ended, and the chunks."""
    request = request if isinstance(request, Request) else Request(request)
    run, chunks = Run(request, complete(request, shared, lambda: CHUNK)), []
    while (chunk := run.chunk) is not None:
        chunks.append(chunk)
        run.resume(tuple(said if isinstance(said, Choice) else Choice(said, -0.5) for said in says(chunk)))
    return request, chunks


def one_after_another(said: Sequence[int | Choice]) -> Callable[[Chunk], Sequence[Any]]:
    left = iter(said)
    return lambda chunk: [next(left) for _ in range(chunk.wanted)]


def beside(token_id: int, *others: int) -> Choice:
    """A choice that was nearly another one."""
    return Choice(token_id, -0.5, ((token_id, -0.5), *((other, -1.0 - rank) for rank, other in enumerate(others))))
