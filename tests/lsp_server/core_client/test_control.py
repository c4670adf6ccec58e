"""The address of a core's dashboard, from cores that answer well and badly."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from pygls.exceptions import JsonRpcException

from lsp_server.core_client.control import dashboard_url
from protocol.errors import CoreUnavailable, MidfillError, Unauthorized
from protocol.settings import Settings
from tests.lsp_server.editor import Editor

LINK = json.dumps({"key": "KEY", "code": "CODE"})


@contextmanager
def answering(status: int, body: str) -> Iterator[tuple[Settings, list[str]]]:
    """Settings that name a server with this answer, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization']}")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield Settings(core=f"ws://127.0.0.1:{server.server_port}", core_token="secret"), asked
        finally:
            server.shutdown()


@pytest.mark.parametrize(("once", "shown"), [(True, "CODE"), (False, "KEY")])
async def test_the_address_carries_what_opens_the_page_and_not_the_token(once: bool, shown: str) -> None:
    with answering(200, LINK) as (settings, asked):
        url = await dashboard_url(settings, once=once)
    assert url == f"{settings.core.replace('ws:', 'http:')}/dashboard#{shown}"
    assert asked == ["/dashboard/link Bearer secret"]


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [(401, "", Unauthorized), (404, "", CoreUnavailable), (200, "{", CoreUnavailable), (200, "{}", CoreUnavailable)],
)
async def test_a_core_that_gives_no_link_is_named(status: int, body: str, error: type[MidfillError]) -> None:
    with answering(status, body) as (settings, _), pytest.raises(error, match=r"ws://127\.0\.0\.1"):
        await dashboard_url(settings, once=True)


async def test_an_editor_gets_the_address_or_the_reason(editor: Editor) -> None:
    with pytest.raises(JsonRpcException, match="dashboard"):  # this core has none
        await editor.execute("midfill.linkDashboard")


async def test_a_users_token_goes_only_to_a_core_that_knows_it() -> None:
    with answering(200, LINK) as (settings, asked), pytest.raises(MidfillError):
        await dashboard_url(replace(settings, core_token=f"midfill_{16 * '0'}_{43 * 'x'}"), once=True)
    assert asked == []
