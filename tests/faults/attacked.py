"""A core process under attack: how to reach it, what it holds of the system, and how fast it answers a typist."""

from __future__ import annotations

import json
import os
import random
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import psutil
from websockets.sync.client import ClientConnection, connect

from protocol.messages import CompletionRequest, Prompt
from protocol.rendezvous import address_file, read_address, read_or_make_token
from protocol.settings import TINY_MODEL
from protocol.wire import Complete, Completed, Failed, Prefilled, StatusChanged, decode_core, encode

PATIENCE_S = 120.0
KEYS = 26  # of a typist's turn; the first one is cold
SOURCE = Path(__file__).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Holds:
    """What a process holds of the system."""

    megabytes: int
    descriptors: int
    threads: int

    def __str__(self) -> str:
        return f"{self.megabytes} {self.descriptors} {self.threads}"


@dataclass(frozen=True)
class Core:
    """A core that serves the tiny model."""

    process: psutil.Popen
    address: str
    token: str
    log_file: Path

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def holds(self) -> Holds:
        process = self.process
        return Holds(process.memory_info().rss // 10**6, process.num_fds(), process.num_threads())

    def tcp(self) -> socket.socket:
        host, port = self.address.split(":")
        return socket.create_connection((host, int(port)), PATIENCE_S)

    def websocket(self) -> ClientConnection:
        return connect(f"ws://{self.address}/ws", additional_headers=self.bearer, open_timeout=PATIENCE_S)

    def infill(self, **fields: object) -> str:
        request = urllib.request.Request(f"http://{self.address}/infill", json.dumps(fields).encode(), self.bearer)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return str(json.load(answer)["content"])


@contextmanager
def attacked_core(folder: Path, *options: str, files: int | None = None) -> Iterator[Core]:
    """A core of its own, which may open so many `files`, with its model in memory."""

    def limit_files() -> None:
        if files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    log_file = folder / "core.log"
    environment = {**os.environ, "MIDFILL_RUNTIME_DIR": str(folder), "MIDFILL_MODEL": TINY_MODEL}
    environment["MIDFILL_CACHE_DIR"] = str(folder / "kv")
    command = [sys.executable, "-m", "midfill", "core", "--disk-mb", "0", "--log-file", str(log_file), *options]
    process = psutil.Popen(command, env=environment, stderr=subprocess.DEVNULL, preexec_fn=limit_files)
    try:
        wait_until(lambda: read_address(address_file(folder, TINY_MODEL)) is not None)
        address = read_address(address_file(folder, TINY_MODEL))
        assert address is not None
        core = Core(process, urlsplit(address.url).netloc, read_or_make_token(folder), log_file)
        core.infill(input_prefix="x", n_predict=1)
        yield core
    finally:
        process.kill()
        process.wait()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ask(websocket: ClientConnection, request: CompletionRequest, number: int = 1) -> Completed | Failed:
    websocket.send(encode(Complete(number, request)))
    while isinstance(message := decode_core(str(websocket.recv(PATIENCE_S))), StatusChanged | Prefilled):
        pass
    return message


def typist(core: Core, keys: int = KEYS) -> list[float]:
    """Milliseconds per key of a client that types, sorted."""
    times = []
    text = SOURCE[1500 : 1500 + keys]
    with core.websocket() as websocket:
        for count in range(keys):
            prompt = Prompt(SOURCE[:1500], SOURCE[1600:3000], text[:count])
            started = time.perf_counter()
            answer = ask(websocket, CompletionRequest("typist/a.py", prompt, 16), count)
            if count:  # the first one is cold
                times.append((time.perf_counter() - started) * 1e3)
            assert isinstance(answer, Completed), answer
            time.sleep(0.03)
    return sorted(times)


def percentile(times: Sequence[float], rank: int) -> float:
    return sorted(times)[len(times) * rank // 100]


ROWS: list[tuple[str, str, str]] = []


def report(what: str, bound: str, measured: str) -> None:
    """Add a row to the table behind the tests."""
    ROWS.append((what, bound, measured))


@dataclass
class Flood:
    """Bytes that a client sends for as long as the core takes them, over and over; it drops what it receives.

    Sending is the system's work: beside it, this process has time to type.
    """

    core: Core
    content: bytes
    opening: bytes = b""
    sent_bytes: int = 0

    @classmethod
    def of_messages(cls, core: Core, token: str, messages: Iterable[str | bytes]) -> Self:
        """Over a WebSocket, as the token's user."""
        opening = (
            f"GET /ws HTTP/1.1\r\nHost: {core.address}\r\nAuthorization: Bearer {token}\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        )
        return cls(core, b"".join(map(_frame, messages)), opening.encode())

    def __call__(self, over: threading.Event) -> None:
        """Until it is over."""
        with self.core.tcp() as client:
            if self.opening:
                client.sendall(self.opening)
                assert client.recv(4096).startswith(b"HTTP/1.1 101")
            client.setblocking(False)
            place = 0
            while not over.is_set():
                readable, writable, _ = select.select([client], [client], [], 0.05)
                if readable and not client.recv(2**20):
                    return  # the core has dropped it
                if writable:
                    sent = client.send(self.content[place : place + 2**16])
                    place = (place + sent) % len(self.content)
                    self.sent_bytes += sent


def _frame(message: str | bytes) -> bytes:
    """A client's frame, masked by zeros."""
    content, kind = (message.encode(), 0x81) if isinstance(message, str) else (message, 0x82)
    is_short = len(content) < 2**16
    head = struct.pack("!BBH" if is_short else "!BBQ", kind, 0xFE if is_short else 0xFF, len(content))
    return head + bytes(4) + content


def cold(rng: random.Random, chars: int) -> Prompt:
    """A prompt like no other."""
    words = "".join(f"{rng.randrange(10**6)} = {rng.randrange(10**6)}\n" for _ in range(100))
    return Prompt(words * (chars // len(words) + 1), "\n")


def prompts(count: int, chars: int, max_tokens: int, name: str = "f", alternatives: int = 0) -> Iterator[str]:
    """Requests for so many sessions, with prompts like no other."""
    rng = random.Random(name)
    for number in range(count):
        spec = CompletionRequest(f"{name}/{number}", cold(rng, chars), max_tokens, alternatives=alternatives)
        yield encode(Complete(number, spec))


def assert_answered_beside(core: Core, floods: Sequence[Flood], name: str, times: float = 2.0, rounds: int = 4) -> None:
    """That a typist's 95th percentile beside all floods is at most so many times that of the typist alone.

    Both are measured in turn, so that other work of the machine disturbs both.
    """
    alone, attacked = list[float](), list[float]()
    for _ in range(rounds):
        alone += typist(core, KEYS)
        with ExitStack() as stack:
            for flood in floods:
                stack.enter_context(beside(flood))
            attacked += typist(core, KEYS)
    assert all(flood.sent_bytes for flood in floods)
    assert_alike(alone, attacked, 95, name, times)


def assert_alike(alone: Sequence[float], attacked: Sequence[float], rank: int, name: str, times: float = 2.0) -> None:
    """That a typist's percentile of this rank is at most so many times that of the typist alone."""
    before = percentile(alone, rank)
    ratio = percentile(attacked, rank) / before
    report(f"p{rank} of a typist beside {name}", f"{times:g} times that alone", f"{ratio:.2f} times ({before:.0f} ms)")
    assert ratio <= times


@contextmanager
def beside(attack: Callable[[threading.Event], None]) -> Iterator[None]:
    """Let an attack run, in a thread, while the block does."""
    over = threading.Event()
    thread = threading.Thread(target=attack, args=(over,))
    thread.start()
    try:
        time.sleep(0.3)
        yield
    finally:
        over.set()
        thread.join(PATIENCE_S)
