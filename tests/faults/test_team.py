"""Attacks by users of a core for a team: others are answered, and memory stays bounded."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from inference.core.users import add_token
from tests.faults.attacked import Core, Flood, assert_alike, assert_answered_beside, attacked_core, prompts, report, typist
from tests.inference.core.test_tls import issue

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

KB_PER_IDLE_TLS = 400
"""asyncio's buffer for each TLS connection has 256 KiB; the rest is OpenSSL's and ours."""


@dataclass(frozen=True)
class Team:
    core: Core
    port: int
    authority: Path
    tokens: dict[str, str]

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority)

    def bearer(self, user: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.tokens[user]}"}

    def tcp(self) -> socket.socket:
        return self.context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), 120), server_hostname="127.0.0.1")


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    folder = tmp_path_factory.mktemp("team")
    issue(folder)
    users = folder / "users.json"
    tokens = {name: add_token(users, name) for name in ("ann", "bob")}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--tls-cert", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem"), "--users", str(users)]
    with attacked_core(folder, "--model", "tiny", "--port", str(port), *options) as core:
        yield Team(core, port, folder / "authority.pem", tokens)


async def test_two_thousand_idle_tls_clients(team: Team) -> None:
    alone = await asyncio.to_thread(typist, team.core)
    context, before = team.context, team.core.holds()
    async with AsyncExitStack() as stack:
        for _ in range(2000):
            url = f"wss://127.0.0.1:{team.port}/ws"
            await stack.enter_async_context(connect(url, ssl=context, additional_headers=team.bearer("bob"), open_timeout=120))
        first = team.core.holds()
        await asyncio.sleep(5)
        second = team.core.holds()
        report("KB for each of 2,000 idle TLS clients", f"{KB_PER_IDLE_TLS}", f"{(first.megabytes - before.megabytes) / 2}")
        assert first.descriptors - before.descriptors >= 2000
        assert first.megabytes - before.megabytes < 2 * KB_PER_IDLE_TLS
        assert second.megabytes - first.megabytes < 30
        assert_alike(alone, await asyncio.to_thread(typist, team.core), 50, "2,000 idle TLS clients")


def test_a_user_with_ten_connections_takes_one_users_share(team: Team) -> None:
    floods = [Flood.of_messages(team.core, team.tokens["bob"], prompts(200, 9000, 16, f"f{number}")) for number in range(10)]
    assert_answered_beside(team.core, floods, "ten connections with prompts of 3,000 tokens", 4.0)


@pytest.mark.parametrize("chunk", [2**20, 1])
def test_bodies_without_an_end(team: Team, chunk: int) -> None:
    """A body of chunks without a last one: refused at the limit where it is fast, held where it trickles."""
    alone, before = typist(team.core), team.core.holds().megabytes
    head = f"POST /infill HTTP/1.1\r\nHost: 127.0.0.1:{team.port}\r\nAuthorization: Bearer {team.tokens['bob']}\r\n"
    with team.tcp() as client:
        client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        with contextlib.suppress(OSError):
            for _ in range(64):
                client.sendall(f"{chunk:x}\r\n".encode() + b"x" * chunk + b"\r\n")
        assert team.core.holds().megabytes - before < 100
        assert_alike(alone, typist(team.core), 50, f"a body in chunks of {chunk}")
        if chunk > 1:
            assert client.recv(12) == b"HTTP/1.1 413"
