from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from inference.core.http import responses
from inference.core.http.responses import EVENTS, streamed
from protocol.errors import MidfillError

SCOPE: dict[str, Any] = {"type": "http", "method": "POST", "path": "/", "headers": [], "asgi": {"spec_version": "2.4"}}


def failure(_error: MidfillError) -> bytes:
    return b"failed"


async def receive() -> dict[str, Any]:
    return await asyncio.Future()


async def test_a_client_that_reads_nothing_does_not_keep_the_texts_coming(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(responses, "STALLED_AFTER_S", 0.02)
    is_closed = asyncio.Event()

    async def pieces() -> AsyncGenerator[bytes]:
        try:
            while True:
                yield b"more"
        finally:
            is_closed.set()

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) > 3:
            await asyncio.Future()  # the client's window is full

    response = await streamed(pieces(), EVENTS, failure)
    async with asyncio.timeout(30):
        await response(SCOPE, receive, send)
        await is_closed.wait()
    assert "has read nothing of its stream for 0.02 s" in caplog.text
