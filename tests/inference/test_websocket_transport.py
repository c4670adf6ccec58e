from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from inference import websocket_transport
from inference.http_fields import MAX_BODY_BYTES
from inference.websocket_transport import WebSocketTransport
from tests.inference.serving import BEARER, serving

PATIENCE_S = 30.0


@dataclass
class Recorder:
    """Does with every message what the test wants."""

    socket: WebSocketTransport
    on_message: Callable[[WebSocketTransport, str | bytes], None]
    gone: threading.Event = field(default_factory=threading.Event)

    def receive(self, message: str | bytes) -> None:
        self.on_message(self.socket, message)

    def disconnected(self) -> None:
        self.gone.set()


def echo(transport: WebSocketTransport, message: str | bytes) -> None:
    transport.send(f"{type(message).__name__} {len(message)} {message[:20]!r}")


@contextmanager
def connected(
    on_message: Callable[[WebSocketTransport, str | bytes], None] = echo, ended: threading.Event | None = None
) -> Iterator[tuple[ClientConnection, Recorder]]:
    recorders: list[Recorder] = []

    def handle(transport: WebSocketTransport) -> Recorder:
        recorders.append(Recorder(transport, on_message))
        return recorders[-1]

    with (
        serving(handle, ended=ended) as address,
        connect(f"ws://{address}/ws", additional_headers=BEARER, max_size=None) as client,
    ):
        client.ping().wait(PATIENCE_S)  # the handler is there now
        yield client, recorders[0]


@contextmanager
def shaking_hands(address: str, *headers: str) -> Iterator[socket.socket]:
    """A client by hand, that asks for a WebSocket."""
    host, port = address.split(":")
    lines = [
        "GET /ws HTTP/1.1",
        f"Host: {address}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        f"Authorization: {BEARER['Authorization']}",
        *headers,
    ]
    with socket.create_connection((host, int(port)), PATIENCE_S) as client:
        client.sendall("".join(f"{line}\r\n" for line in (*lines, "")).encode())
        yield client


COMPLETE = ("Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {'A' * 22}==")


def read_all(client: socket.socket) -> bytes:
    """What comes until the connection ends."""
    return b"".join(iter(lambda: client.recv(4096), b""))


def test_messages_come_whole_whatever_their_frames() -> None:
    with connected() as (client, _):
        client.send("ä")
        assert client.recv(PATIENCE_S) == "str 1 'ä'"
        client.send(["ab", "", "cd"])
        assert client.recv(PATIENCE_S) == "str 4 'abcd'"
        client.send(b"\x00")
        assert client.recv(PATIENCE_S) == "bytes 1 b'\\x00'"
        client.send([b"\x00", b"\x01"])
        assert client.recv(PATIENCE_S) == "bytes 2 b'\\x00\\x01'"
        client.send("x" * (MAX_BODY_BYTES - 1))
        assert str(client.recv(PATIENCE_S)).startswith(f"str {MAX_BODY_BYTES - 1} ")


def test_what_is_not_utf_8_ends_the_connection() -> None:
    with connected() as (client, recorder):
        client.send(b"\xff", text=True)
        with pytest.raises(ConnectionClosed) as ended:
            client.recv(PATIENCE_S)
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 1007
        assert recorder.gone.wait(PATIENCE_S)


def test_what_is_too_large_ends_the_connection_before_it_is_read() -> None:
    def handle(transport: WebSocketTransport) -> Recorder:
        return Recorder(transport, echo)

    with serving(handle) as address, shaking_hands(address, *COMPLETE) as client:
        assert client.recv(4096).startswith(b"HTTP/1.1 101 ")
        client.sendall(b"\x81\xff" + (MAX_BODY_BYTES + 1).to_bytes(8) + b"mask")
        assert (1009).to_bytes(2) in read_all(client)


def test_answers_of_many_threads_come_whole_and_in_each_ones_order() -> None:
    """With a client that reads slowly, so that the socket, the transport and its rest are all full at times."""
    count, size = 60, 100_000

    def answer(transport: WebSocketTransport, name: str) -> None:
        for number in range(count):
            transport.send(f"{name} {number} ".ljust(size, name))

    with connected() as (client, recorder), ThreadPoolExecutor() as pool:
        answered = [pool.submit(answer, recorder.socket, name) for name in "abc"]
        pool.submit(lambda: [client.send("hello") for _ in range(count)])  # answered by the event loop
        heard: dict[str, list[int]] = {}
        echoed = 0
        for _ in range(4 * count):
            time.sleep(0.001)
            message = str(client.recv(PATIENCE_S))
            if message.startswith("str"):
                echoed += 1
                continue
            name, number, _ = message.split(" ", 2)
            assert message == f"{name} {number} ".ljust(size, name)
            heard.setdefault(name, []).append(int(number))
        for future in answered:
            future.result()
        assert echoed == count
        assert heard == {name: list(range(count)) for name in "abc"}


def test_another_thread_does_not_overtake_what_waits_in_the_event_loop() -> None:
    size = 20_000_000  # more than sockets take

    def answer(transport: WebSocketTransport, _message: str | bytes) -> None:
        transport.send("x" * size)
        time.sleep(0.3)  # there is room in the socket again, but the loop is held up here
        with ThreadPoolExecutor() as pool:
            pool.submit(transport.send, "after it").result()

    with connected(answer) as (client, _):
        client.send("hello")
        assert client.recv(PATIENCE_S) == "x" * size
        assert client.recv(PATIENCE_S) == "after it"


def test_sending_to_who_has_gone_is_nothing() -> None:
    with connected() as (client, recorder):
        client.close()
        assert recorder.gone.wait(PATIENCE_S)
        recorder.socket.send("x")
        with ThreadPoolExecutor() as pool:
            pool.submit(recorder.socket.send, "x").result()


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/ws", {}, 401),
        ("/ws", {**BEARER, "Origin": "https://evil.example"}, 403),
        ("/nowhere", BEARER, 404),
        ("/nowhere", {}, 401),
    ],
)
def test_handshake_is_refused(path: str, headers: dict[str, str], status: int) -> None:
    def handle(transport: WebSocketTransport) -> Recorder:
        raise AssertionError(transport)

    with serving(handle) as address, pytest.raises(InvalidStatus) as refused:
        connect(f"ws://{address}{path}", additional_headers=headers)
    assert refused.value.response.status_code == status
    assert refused.value.response.body


def test_handshake_that_is_none_is_refused() -> None:
    def handle(transport: WebSocketTransport) -> Recorder:
        raise AssertionError(transport)

    with serving(handle) as address, shaking_hands(address) as client:
        answer = read_all(client)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"Sec-WebSocket-Key" in answer


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Authorization: Bearer wrong"], b"401"),
        (["Origin: https://allowed.example", "Origin: https://evil.example"], b"403"),
        (["Authorization: \xff"], b"401"),
    ],
)
def test_header_that_comes_twice_lets_nobody_in(headers: list[str], status: bytes) -> None:
    def handle(transport: WebSocketTransport) -> Recorder:
        raise AssertionError(transport)

    with serving(handle) as address, shaking_hands(address, *COMPLETE, *headers) as client:
        assert read_all(client).startswith(b"HTTP/1.1 " + status)


def test_client_that_does_not_answer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_transport, "PING_EVERY_S", 0.2)
    recorders: list[Recorder] = []

    def handle(transport: WebSocketTransport) -> Recorder:
        recorders.append(Recorder(transport, echo))
        return recorders[-1]

    with (
        serving(handle) as address,
        connect(f"ws://{address}/ws", additional_headers=BEARER),
        shaking_hands(address, *COMPLETE) as silent,
    ):
        read_all(silent)
        assert recorders[1].gone.wait(PATIENCE_S)
        assert not recorders[0].gone.is_set()  # it answers pings


def test_clients_are_told_when_the_server_stops() -> None:
    ended = threading.Event()
    with connected(ended=ended) as (client, recorder):
        ended.set()
        with pytest.raises(ConnectionClosed) as closed:
            client.recv(PATIENCE_S)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
        assert recorder.gone.wait(PATIENCE_S)
