"""Attacks on a core process: it goes on answering, and holds no more of the system afterwards than before."""

from __future__ import annotations

import contextlib
import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from protocol.messages import CompletionRequest
from protocol.wire import Completed
from tests.faults.attacked import Core, ask, assert_alike, attacked_core, cold, report, typist, wait_until

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Core]:
    with attacked_core(tmp_path_factory.mktemp("runtime")) as core:
        typist(core, 10)
        yield core


@pytest.fixture(autouse=True)
def _holds_no_more_afterwards(core: Core, request: pytest.FixtureRequest) -> Iterator[None]:
    before = core.holds()
    yield
    with contextlib.suppress(AssertionError):  # connections end in their own time
        wait_until(lambda: core.holds().descriptors <= before.descriptors + 1)
    after = core.holds()
    report(f"{request.node.name}: MB, descriptors, threads", f"{before} + 150 1 2", f"{after}")
    assert after.descriptors <= before.descriptors + 1
    assert after.threads <= before.threads + 2
    assert after.megabytes <= before.megabytes + 150


def test_two_thousand_idle_clients_cost_little(core: Core) -> None:
    alone = typist(core)
    with ExitStack() as stack:
        for _ in range(2000):
            stack.enter_context(core.websocket())
        assert core.infill(input_prefix="x = ", n_predict=2)
        assert_alike(alone, typist(core), 50, "2,000 idle clients")


def test_malformed_frames_and_requests(core: Core) -> None:
    rng = random.Random(4)
    head = f"GET /ws HTTP/1.1\r\nHost: {core.address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n".encode()
    for number in range(300):
        with core.tcp() as client, contextlib.suppress(OSError):
            if number % 2:
                key = b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                client.sendall(head + key + f"Authorization: Bearer {core.token}\r\n\r\n".encode())
                client.recv(4096)
            client.sendall(rng.randbytes(rng.randrange(1, 2000)))
    assert core.infill(input_prefix="x = ", n_predict=2)


def test_body_of_a_gigabyte(core: Core) -> None:
    with core.tcp() as client, contextlib.suppress(OSError):
        head = f"POST /infill HTTP/1.1\r\nHost: {core.address}\r\nAuthorization: Bearer {core.token}\r\n"
        client.sendall(f"{head}Content-Length: {2**30}\r\n\r\n".encode())
        for _ in range(1024):
            client.sendall(b"x" * 2**20)
            if core.holds().megabytes > 2000:
                raise AssertionError(core.holds())
    assert core.infill(input_prefix="x = ", n_predict=2)


def test_clients_that_never_read(core: Core) -> None:
    before = core.holds().megabytes
    with ExitStack() as stack:
        for _ in range(5):
            websocket = stack.enter_context(core.websocket())
            websocket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with contextlib.suppress(ConnectionClosed, TimeoutError):
                websocket.socket.settimeout(5)
                for _ in range(2000):
                    websocket.send("x" * 4000)
        more = core.holds().megabytes - before
        report("5 clients that never read: MB", "140", f"{more}")
        assert more < 5 * 2 * 4 + 100
        assert core.infill(input_prefix="x = ", n_predict=2)


def test_a_thousand_silent_strangers_where_few_files_may_be_open(tmp_path: Path) -> None:
    with attacked_core(tmp_path, files=256) as core, ExitStack() as stack:
        for _ in range(1100):
            stack.enter_context(core.tcp())
        for _ in range(20):
            assert core.infill(input_prefix="x = ", n_predict=2)
            time.sleep(0.2)
        log_bytes = sum(file.stat().st_size for file in tmp_path.glob("core.log*"))
        report("1,100 silent strangers: bytes of log", "100000", f"{log_bytes}")
        assert log_bytes < 100_000


def test_unloading_returns_the_memory(tmp_path: Path) -> None:
    with attacked_core(tmp_path, "--unload-after-s", "3") as core, core.websocket() as websocket:
        rng = random.Random(5)
        for number in range(30):
            answer = ask(websocket, CompletionRequest(f"{number}", cold(rng, 9000), 16), number)
            assert isinstance(answer, Completed)
        loaded = core.holds().megabytes
        wait_until(lambda: "unloaded tiny" in core.log_file.read_text())
        time.sleep(1)
        report("MB after unloading", f"{min(loaded - 100, 400)}", f"{core.holds().megabytes}")
        assert core.holds().megabytes < min(loaded - 100, 400)
