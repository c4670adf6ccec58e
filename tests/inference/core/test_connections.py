"""Clients by hand, over real sockets: what is refused, who is dropped, and that the others are served meanwhile."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from unittest.mock import Mock

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from inference.core import process
from inference.core import websocket as outbox
from inference.core.admission import Access, RequireToken
from inference.core.connections import LOOP_CREDIT_S, LOOP_SHARE, STRANGER_WAIT_S, Connections, LoopShares
from inference.core.http.bodies import MAX_BODY_BYTES
from inference.loading.options import EngineOptions
from protocol.messages import CompletionRequest, Prompt
from protocol.wire import Complete, Completed, Failed, decode_core, encode
from tests.inference.serving import BEARER, PATIENCE_S, TOKEN, Served, receive, serving, wait_until

pytestmark = pytest.mark.usefixtures("quick_core")

COMPLETE = ("Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {'A' * 22}==")


@pytest.fixture
def options(tiny_checkpoint: Path) -> EngineOptions:
    return EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1)


@pytest.fixture
def served(options: EngineOptions) -> Iterator[Served]:
    with serving(options) as served:
        yield served


def plain(served: Served) -> socket.socket:
    host, port = served.address.split(":")
    return socket.create_connection((host, int(port)), PATIENCE_S)


@contextmanager
def shaking_hands(served: Served, *headers: str) -> Iterator[socket.socket]:
    """A client by hand, that asks for a WebSocket."""
    lines = [
        "GET /ws HTTP/1.1",
        f"Host: {served.address}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        f"Authorization: {BEARER['Authorization']}",
        *headers,
    ]
    with plain(served) as client:
        client.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1"))
        yield client


def read_all(client: socket.socket) -> bytes:
    """What comes until the connection ends."""
    try:
        return b"".join(iter(lambda: client.recv(4096), b""))
    except ConnectionResetError:
        return b""


def complete(websocket: ClientConnection, request: CompletionRequest | None = None) -> Completed | Failed:
    websocket.send(encode(Complete(1, request or CompletionRequest("a.py", Prompt("x = ", "\n"), 2))))
    answer: Completed | Failed = receive(websocket)
    return answer


def infill(served: Served) -> str:
    """An HTTP client with the token is answered."""
    request = urllib.request.Request(
        f"http://{served.address}/infill", json.dumps({"input_prefix": "x", "n_predict": 1}).encode(), BEARER
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return str(json.load(response)["model"])


def test_messages_in_several_frames_come_whole(served: Served) -> None:
    with served.connect() as client:
        text = encode(Complete(1, CompletionRequest("a.py", Prompt("ä = ", "\n"), 2)))
        client.send([text[:10], "", text[10:]])
        client.ping().wait(PATIENCE_S)
        assert isinstance(complete(client), Completed | Failed)


def test_what_is_not_utf_8_ends_the_connection(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with served.connect() as client:
        client.send(b"\xff", text=True)
        with pytest.raises(ConnectionClosed) as ended:
            wait_until(lambda: client.recv(PATIENCE_S) == "")
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 1007
        assert caplog.records == []
        wait_until(lambda: served.clients.connections == 0)


@pytest.mark.parametrize(
    "header", ["Content-Length: 3", "Transfer-Encoding: chunked", f"A: {'b' * 20_000}", "\r\n".join(["A: b"] * 200)]
)
def test_a_handshake_that_cannot_be_read_is_answered(served: Served, header: str) -> None:
    with shaking_hands(served, *COMPLETE, header) as client:
        assert read_all(client).startswith(b"HTTP/1.1 400 ")


def test_a_bad_frame_before_the_end_of_the_handshake_is_no_fault_of_the_core(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with shaking_hands(served, *COMPLETE) as client:
        client.sendall(b"\xff" * 40)
        read_all(client)
    infill(served)
    assert caplog.records == []


def test_a_client_that_sends_too_much_reads_why(served: Served) -> None:
    with closing(HTTPConnection(served.address, timeout=PATIENCE_S)) as client:
        client.request("POST", "/infill", b" " * (2 * MAX_BODY_BYTES), BEARER)
        with client.getresponse() as response:
            assert (response.status, b"larger than" in response.read()) == (413, True)


def test_what_is_too_large_ends_the_connection_before_it_is_read(served: Served) -> None:
    with shaking_hands(served, *COMPLETE) as client:
        assert client.recv(12) == b"HTTP/1.1 101"
        client.sendall(b"\x81\xff" + (MAX_BODY_BYTES + 1).to_bytes(8) + b"mask")
        assert (1009).to_bytes(2) in read_all(client)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/ws", {}, 401),
        ("/ws", {**BEARER, "Origin": "https://evil.example"}, 403),
        ("/ws", {"Authorization": "Bearer wrong"}, 401),
        ("/nowhere", BEARER, 404),
        ("/nowhere", {}, 401),
    ],
)
def test_handshake_is_refused(served: Served, path: str, headers: dict[str, str], status: int) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://{served.address}{path}", additional_headers=headers)
    assert refused.value.response.status_code == status
    assert set(json.loads(refused.value.response.body or b"")["error"]) == {"message", "type", "code"}
    wait_until(lambda: len(served.connections) == 0)  # also where the token was shown


def test_handshake_that_is_none_is_refused(served: Served) -> None:
    with shaking_hands(served) as client:
        assert read_all(client).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Authorization: Bearer wrong"], b"401"),
        (["Origin: https://allowed.example", "Origin: https://evil.example"], b"400"),
        (["Authorization: \xff"], b"401"),
        (["X-Forwarded-Host: evil.example", "Host: evil.example"], b"4"),
    ],
)
def test_header_that_comes_twice_lets_nobody_in(served: Served, headers: list[str], status: bytes) -> None:
    with shaking_hands(served, *COMPLETE, *headers) as client:
        assert read_all(client).startswith(b"HTTP/1.1 " + status)


def test_browser_shows_the_token_as_a_subprotocol(served: Served) -> None:
    def open_as_browser(*subprotocols: str) -> ClientConnection:
        return connect(
            f"ws://{served.address}/ws",
            origin="https://allowed.example",  # type: ignore[arg-type]
            subprotocols=subprotocols,  # type: ignore[arg-type]
        )

    with open_as_browser("midfill", f"midfill.bearer.{TOKEN}") as client:
        assert client.subprotocol == "midfill"
        assert isinstance(complete(client), Completed)
    for wrong in ("midfill.bearer.wrong", TOKEN, "midfill.bearer."):
        with pytest.raises(InvalidStatus) as refused:
            open_as_browser("midfill", wrong)
        assert refused.value.response.status_code == 401


def test_clients_are_notified_when_the_server_stops(served: Served) -> None:
    with served.connect() as client:
        client.recv(PATIENCE_S)
        served.over.set()
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(PATIENCE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012


def test_client_that_does_not_answer_is_dropped(options: EngineOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PING_EVERY_S", 0.2)
    with serving(options) as served, served.connect() as lively, shaking_hands(served, *COMPLETE) as silent:
        read_all(silent)
        assert isinstance(complete(lively), Completed)


def never_reads(served: Served, stack: ExitStack) -> socket.socket:
    """A client that shows the token, asks for a WebSocket, and takes nothing of what comes."""
    client = stack.enter_context(socket.socket())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    host, port = served.address.split(":")
    client.connect((host, int(port)))
    lines = [f"GET /ws HTTP/1.1\r\nHost: {served.address}\r\nConnection: Upgrade\r\nUpgrade: websocket", *COMPLETE]
    client.sendall("\r\n".join([*lines, f"Authorization: {BEARER['Authorization']}", "", ""]).encode())
    return client


def nonsense() -> bytes:
    """A masked frame of a message that cannot be read, which is answered with a longer one."""
    return b"\x81\xfe" + (200).to_bytes(2) + b"\0\0\0\0" + b"x" * 200


@pytest.mark.parametrize("limit", ["bytes", "time"])
def test_client_that_never_reads_is_dropped(served: Served, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(outbox, "MAX_UNSENT_CHARS", 10_000 if limit == "bytes" else 2**30)
    monkeypatch.setattr(outbox, "STALLED_AFTER_S", PATIENCE_S if limit == "bytes" else 0.2)
    with ExitStack() as stack:
        client = never_reads(served, stack)
        with pytest.raises(OSError, match=r"reset|pipe"):
            client.sendall(nonsense() * 200_000)
        wait_until(lambda: served.clients.connections == 0 and len(served.connections) == 0)
        assert infill(served) == "tiny"


def test_answers_come_in_order_to_a_client_that_reads_slowly(served: Served) -> None:
    count = 1500
    with served.connect(max_queue=1) as client:
        sending = threading.Thread(target=lambda: [client.send(f"{number} " + "x" * 300) for number in range(count)])
        sending.start()
        heard = 0
        while heard < count:
            message = decode_core(str(client.recv(PATIENCE_S)))
            if isinstance(message, Failed):
                assert f"'{heard} xx" in message.message
                heard += 1
        sending.join()


def test_strangers_are_few_and_the_oldest_goes_first(options: EngineOptions) -> None:
    connections = Connections(max_open=1000, max_strangers=8)
    with serving(options, connections) as served, ExitStack() as stack:
        admitted = stack.enter_context(served.connect())
        strangers = [stack.enter_context(plain(served)) for _ in range(40)]
        for stranger in strangers[:32]:
            assert read_all(stranger) == b""
        assert len(connections) <= 9
        assert infill(served) == "tiny"
        assert isinstance(complete(admitted), Completed)


def test_stranger_that_says_nothing_or_half_a_request_is_dropped_in_time(options: EngineOptions) -> None:
    with serving(options, Connections(max_open=1000, token_within_s=0.2)) as served, ExitStack() as stack:
        admitted = stack.enter_context(served.connect())
        silent, slow, refused = (stack.enter_context(plain(served)) for _ in range(3))
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0")
        refused.sendall(f"POST /infill HTTP/1.1\r\nHost: {served.address}\r\nContent-Length: 1000000000\r\n\r\n".encode())
        assert read_all(silent) == read_all(slow) == b""
        assert read_all(refused).startswith(b"HTTP/1.1 401 ")
        assert isinstance(complete(admitted), Completed)
        wait_until(lambda: len(served.connections) == 1)


def test_connections_beyond_the_files_that_may_be_open_are_refused(options: EngineOptions) -> None:
    with serving(options, Connections(max_open=3)) as served, ExitStack() as stack:
        admitted = [stack.enter_context(served.connect()) for _ in range(3)]
        assert read_all(stack.enter_context(plain(served))) == b""
        assert isinstance(complete(admitted[0]), Completed)


def test_upload_that_breaks_off_leaves_no_traceback(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with plain(served) as client:
        head = f"POST /infill HTTP/1.1\r\nHost: {served.address}\r\nAuthorization: {BEARER['Authorization']}\r\n"
        client.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
        wait_until(lambda: len(served.connections) == 1)
    wait_until(lambda: len(served.connections) == 0)
    assert infill(served) == "tiny"
    assert not caplog.records


async def test_a_user_who_takes_more_than_a_share_of_the_loop_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    shares = LoopShares()
    for _ in range(1000):
        await shares.pay("flooding", 0.001)
    assert waits[: int(LOOP_CREDIT_S / 0.001) - 1] == [0.0] * (int(LOOP_CREDIT_S / 0.001) - 1)
    owed = (1000 * 0.001 - LOOP_CREDIT_S) / LOOP_SHARE
    assert owed / 2 < waits[-1] <= owed  # some of it was paid meanwhile
    await shares.pay("typing", 0.001)
    assert waits[-1] == 0.0


async def test_a_stranger_waits_briefly_whatever_others_at_the_address_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def app(*_: object) -> None: ...

    monkeypatch.setattr(asyncio, "sleep", sleep)
    core = RequireToken(app, Access(TOKEN), lambda _: None, LoopShares())
    request: dict[str, object] = {"type": "http", "client": ("10.0.0.1", 1), "server": None, "path": "/health", "headers": []}
    for _ in range(1000):
        await core(request, Mock(), Mock())
    assert (waits[0], waits[-1]) == (0.0, STRANGER_WAIT_S)
