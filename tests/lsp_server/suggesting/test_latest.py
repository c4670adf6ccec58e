"""Latest request wins."""

from __future__ import annotations

import asyncio
import gc
from functools import partial

import pytest

from lsp_server.suggesting.latest import Latest


async def never() -> str:
    return await asyncio.Future[str]()


async def say(text: str) -> str:
    return text


async def test_a_newer_one_ends_the_older_at_once() -> None:
    latest: Latest[str] = Latest()
    first = asyncio.create_task(latest.run(never))
    await asyncio.sleep(0)
    assert await latest.run(partial(say, "new")) == "new"
    assert await first is None
    assert not latest.busy


async def test_cancelling_who_waits_ends_the_work() -> None:
    latest: Latest[str] = Latest()
    ended = asyncio.Event()

    async def work() -> str:
        try:
            return await never()
        finally:
            ended.set()

    waiting = asyncio.create_task(latest.run(work))
    await asyncio.sleep(0)
    assert latest.busy
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await ended.wait()
    assert not latest.busy


async def test_errors_reach_who_waits() -> None:
    async def fail() -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await Latest[str]().run(fail)


async def test_who_joined_is_answered_at_once_when_it_is_superseded() -> None:
    latest: Latest[str] = Latest()
    latest.start(never, "here")
    assert (latest.is_for("here"), latest.is_for("there"), latest.awaited) == (True, False, False)
    joined = asyncio.create_task(latest.join())
    await asyncio.sleep(0)
    assert latest.awaited
    assert await latest.run(partial(say, "new")) == "new"
    assert await joined is None
    assert not latest.awaited


async def test_the_result_is_there_in_the_turn_in_which_the_work_ends() -> None:
    latest: Latest[str] = Latest()
    release: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def work() -> str:
        return await release

    waiting = asyncio.create_task(latest.run(work))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    release.set_result("done")
    await asyncio.sleep(0)  # the work goes on, and ends
    assert not latest.busy
    await asyncio.sleep(0)  # who waited goes on
    assert waiting.result() == "done"


async def test_what_is_superseded_before_it_began_is_never_begun(recwarn: pytest.WarningsRecorder) -> None:
    latest: Latest[str] = Latest()
    begun: list[str] = []

    async def work() -> str:
        begun.append("work")
        return "done"

    latest.start(work)
    latest.supersede()
    await asyncio.sleep(0.01)
    assert not begun
    assert not recwarn.list


async def test_an_error_that_nobody_waits_for_is_told_by_the_loop() -> None:
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(repr(context.get("exception"))))

    async def fail() -> str:
        raise ValueError("no")

    latest: Latest[str] = Latest()
    latest.start(fail)
    await asyncio.sleep(0.01)
    gc.collect()
    assert told == ["ValueError('no')"]
    assert not latest.busy
