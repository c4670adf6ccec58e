"""What becomes of the scheduler's texts, with a test in the place of the scheduler."""

from __future__ import annotations

import asyncio
import random
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.requests import Request as HttpRequest
from starlette.testclient import TestClient

from inference.core.http import requests
from inference.core.http.requests import Asking
from inference.core.http.text_anchors import TextAnchors
from inference.core.scheduler import Scheduler
from inference.core.users import User
from inference.engine.request import Request
from inference.loading.options import EngineOptions
from protocol.errors import Busy
from protocol.messages import Alternative, Completion, CompletionRequest, Prompt, Sampling, Usage
from tests.inference.core.http.calls import post
from tests.inference.serving import BEARER, client_of
from tests.inference.tiny import write_checkpoint

REQUEST = CompletionRequest("http/a.py", Prompt("x", "y"), 8)
USAGE = Usage(10, 4, 3, 2, 0.0, 0.0, 0.0)


class Scripted:
    """Tells the texts of the script, with pauses of turns of the event loop, then answers with the last one."""

    def __init__(self, script: list[str], alternatives: tuple[Alternative, ...] = (), pause: int = 5) -> None:
        self._script = script
        self._alternatives = alternatives
        self._pause = pause
        self.asked: list[CompletionRequest] = []
        self.cancelled: list[int] = []

    def submit(self, request: Request) -> None:
        assert not request.supersedes
        self.asked.append(request.spec)
        asyncio.get_running_loop().create_task(self._answer(request))

    async def _answer(self, request: Request) -> None:
        for text in self._script if request.grows else ():
            request.report_text(text)
            for _ in range(self._pause):
                await asyncio.sleep(0)
        request.outcome = Completion(self._script[-1], "length", USAGE, alternatives=self._alternatives)
        request.changed(request)

    def cancel(self, request: Request) -> None:
        self.cancelled.append(self.asked.index(request.spec) + 1)


async def ask(
    scheduler: Scripted, wanted: CompletionRequest = REQUEST, count: int = 1, *, grows: bool = True
) -> list[tuple[int, str, bool]]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    asking = Asking(cast("Scheduler", scheduler), nullcontext, TextAnchors())
    request = HttpRequest({"type": "http", "client": ("127.0.0.1", 5), "headers": [], "user": User()}, receive)
    usages, pieces = [], []
    async for piece in asking.pieces(request, wanted, count, grows=grows):
        pieces.append((piece.choice, piece.text, piece.completion is not None))
        if piece.completion is not None:
            usages.append(piece.completion.usage)
    requests = len(scheduler.asked)
    assert sum(usage.prompt_tokens for usage in usages) == 10
    assert sum(usage.recomputed_tokens for usage in usages) == 4
    assert sum(usage.generated_tokens for usage in usages) == 3 * requests
    return pieces


async def test_a_request_that_began_again_repeats_nothing() -> None:
    scheduler = Scripted(["a", "ab", "ab", "", "a", "abc", "abcd"])
    assert await ask(scheduler) == [(0, "a", False), (0, "b", False), (0, "c", False), (0, "d", False), (0, "", True)]


async def test_a_reader_that_is_late_gets_fewer_pieces_of_the_same_text() -> None:
    scheduler = Scripted(["a" * count for count in range(1, 1000)], pause=0)
    pieces = await ask(scheduler)
    assert len(pieces) < 100
    assert "".join(text for _, text, _ in pieces) == "a" * 999


async def test_a_whole_text_is_not_reported_while_it_grows() -> None:
    """So that a request whose server fails may begin again at another."""
    assert await ask(Scripted(["a", "ab"]), grows=False) == [(0, "ab", True)]


async def test_alternatives_are_choices_and_the_first_fills_up() -> None:
    scheduler = Scripted(["ab"], alternatives=(Alternative("cd", "stop"),))
    assert await ask(scheduler, count=3) == [(0, "ab", False), (0, "", True), (1, "cd", True), (2, "ab", True)]
    assert [request.alternatives for request in scheduler.asked] == [2]


async def test_sampled_choices_are_requests_with_seeds_of_their_own() -> None:
    scheduler = Scripted(["ab"])
    await ask(scheduler, CompletionRequest("", Prompt("x", ""), 8, sampling=Sampling(1.0, seed=5)), 3)
    assert [request.sampling and request.sampling.seed for request in scheduler.asked] == [5, 6, 7]


async def test_every_request_is_cancelled_once_its_client_reads_no_more() -> None:
    scheduler = Scripted(["ab"])
    await ask(scheduler)
    assert set(scheduler.cancelled) == {1}


async def test_a_refused_request_raises_before_any_text() -> None:
    class Full(Scripted):
        def submit(self, *_arguments: Any, **_named: Any) -> int:
            raise Busy("64 requests wait")

    with pytest.raises(Busy):
        await ask(Full(["a"]))


def test_a_prompt_of_another_model_is_reported_once_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    asking = Asking(cast("Scheduler", Scripted([])), nullcontext, TextAnchors())
    http = HttpRequest({"type": "http", "user": User()})
    for _ in range(2):
        asking.laid(http, REQUEST, "<|fim_hole|>x = ", "", repeatable=False)
        asking.laid(http, REQUEST, "x = ", "", repeatable=False)
    (record,) = caplog.records
    assert "begins with <|fim_hole|>: it was written for another model" in record.getMessage()


LINES = Path(requests.__file__).read_text(encoding="utf-8").splitlines(keepends=True)
REPEATABLE: dict[str, tuple[str, dict[str, Any]]] = {
    "llama.cpp, cold": ("/infill", {"cache_prompt": False, "n_predict": 12}),
    "llama.cpp, greedy": ("/infill", {"seed": 7, "n_predict": 12, "n_cmpl": 2}),
    "llama.cpp": ("/infill", {"seed": 7, "temperature": 0.8, "n_predict": 12}),
    "openai": ("/v1/completions", {"seed": 7, "temperature": 0.8, "max_tokens": 12}),
    "ollama": ("/api/generate", {"stream": False, "options": {"seed": 7, "temperature": 0.8, "num_predict": 12}}),
}


def body_at(path: str, line: int, fields: dict[str, Any]) -> dict[str, Any]:
    """A body of this API, with the cursor behind so many lines."""
    before, after = "".join(LINES[:line]), "".join(LINES[90:100])
    if path == "/infill":
        return {"input_prefix": before, "input_suffix": after, **fields}
    return {"prompt": before, "suffix": after, **fields}


def texts_of(answer: Any) -> list[str]:
    if isinstance(answer, list):
        return [text for one in answer for text in texts_of(one)]
    choices = answer.get("choices") or [answer]
    return [choice.get("text") or choice.get("content") or choice["response"] for choice in choices]


@pytest.mark.parametrize(("path", "fields"), REPEATABLE.values(), ids=REPEATABLE)
def test_a_body_with_a_seed_gets_the_text_of_a_fresh_core_whatever_came_before(
    client: TestClient, tmp_path: Path, path: str, fields: dict[str, Any]
) -> None:
    rng = random.Random(path)
    checkpoint = write_checkpoint(tmp_path, max_position_embeddings=2048)
    options = EngineOptions(str(checkpoint), context_tokens=2048, threads=1, slots=4)
    line = rng.randrange(20, 80)
    body = {**body_at(path, line, fields), "session": f"{path} {line}"}
    with client_of(options) as fresh:
        fresh.headers.update(BEARER)
        told = texts_of(post(fresh, path, body))
    for _ in range(4):
        near = body_at("/infill", line + rng.randrange(-14, 4), {"session": body["session"], "n_predict": 3})
        post(client, "/infill", near)
    assert texts_of(post(client, path, body)) == told
