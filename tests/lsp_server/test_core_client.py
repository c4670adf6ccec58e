"""One connection to a core: answers, errors, cancellation, and what happens when the core goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lsp_server.core_client import CoreClient, Endpoint
from protocol.errors import BadModel, CoreUnavailable, Unauthorized
from protocol.messages import CompletionRequest, CoreStatus, Prompt

from .editor import until
from .fake_core import READY, FakeCore

REQUEST = CompletionRequest("s", Prompt("a", "b"), max_tokens=4)


async def never(_: CompletionRequest) -> str:
    return await asyncio.Future[str]()


@pytest.fixture
def statuses() -> list[CoreStatus]:
    return []


@pytest.fixture
async def client(core: FakeCore, statuses: list[CoreStatus]) -> AsyncIterator[CoreClient]:
    client = await CoreClient.open(Endpoint(core.url, core.token), statuses.append)
    yield client
    await client.close()


async def test_answers_come_back_to_who_asked(client: CoreClient, core: FakeCore) -> None:
    async def slow_first(request: CompletionRequest) -> str:
        await asyncio.sleep(0.05 if request.session == "slow" else 0)
        return request.session

    core.answer = slow_first
    requests = [CompletionRequest(session, Prompt("", ""), 1) for session in ("slow", "quick")]
    answers = await asyncio.gather(*(client.complete(request) for request in requests))
    assert [answer.text for answer in answers] == ["slow", "quick"]


async def test_hears_the_status_at_once_and_on_every_change(
    client: CoreClient, core: FakeCore, statuses: list[CoreStatus]
) -> None:
    await until(lambda: statuses == [READY])
    loading = CoreStatus("loading", "fake", progress=0.5)
    await core.set_status(loading)
    await until(lambda: statuses == [READY, loading])


async def test_the_core_s_errors_are_raised_by_their_class(client: CoreClient, core: FakeCore) -> None:
    async def fail(_: CompletionRequest) -> str:
        raise BadModel("no FIM markers")

    core.answer = fail
    with pytest.raises(BadModel, match="no FIM markers"):
        await client.complete(REQUEST)


async def test_cancelling_tells_the_core(client: CoreClient, core: FakeCore) -> None:
    core.answer = never
    pending = asyncio.create_task(client.complete(REQUEST))
    await until(lambda: core.requests)
    pending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pending
    await until(lambda: core.cancelled == [1])


async def test_what_was_said_first_arrives_first(client: CoreClient, core: FakeCore) -> None:
    heard: list[Any] = []
    core.requests = core.forgotten = heard
    client.forget("s")
    client.forget("t")
    await client.complete(REQUEST)
    assert heard == ["s", "t", REQUEST]


async def test_what_is_pending_fails_when_the_core_goes_away(client: CoreClient, core: FakeCore) -> None:
    core.answer = never
    pending = asyncio.create_task(client.complete(REQUEST))
    await until(lambda: core.requests)
    await core.drop_connections()
    with pytest.raises(CoreUnavailable, match="went away"):
        await pending
    await client.wait_closed()
    with pytest.raises(CoreUnavailable, match="is closed"):
        await client.complete(REQUEST)


async def test_forgets_sessions(client: CoreClient, core: FakeCore) -> None:
    client.forget("s")
    await until(lambda: core.forgotten == ["s"])


async def test_wrong_token(core: FakeCore) -> None:
    with pytest.raises(Unauthorized, match="refused the token"):
        await CoreClient.open(Endpoint(core.url, "wrong"), lambda _: None)


@pytest.mark.parametrize("url", ["ws://127.0.0.1:9/ws", "http://127.0.0.1:9/", "nonsense"])
async def test_nobody_there(url: str) -> None:
    with pytest.raises(CoreUnavailable):
        await CoreClient.open(Endpoint(url, "t"), lambda _: None)


def test_the_token_is_not_shown() -> None:
    assert "hush" not in repr(Endpoint("ws://x/ws", "hush"))
