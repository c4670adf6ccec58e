"""A core process under attack: how to reach it, what it holds of the system, and how fast it answers a typist."""

from __future__ import annotations

import json
import os
import random
import resource
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from websockets.sync.client import ClientConnection, connect

from protocol.messages import CompletionRequest, Prompt
from protocol.rendezvous import address_file, read_address, read_or_make_token
from protocol.settings import TINY_MODEL
from protocol.wire import Complete, Completed, Failed, Prefilled, StatusChanged, decode_core, encode

PATIENCE_S = 120.0
Request = Callable[[str, random.Random], CompletionRequest]
SOURCE = Path(__file__).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Holds:
    """What a process holds of the system."""

    megabytes: int
    descriptors: int
    threads: int


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


def typist(core: Core, keys: int = 80) -> list[float]:
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


def percentile(times: list[float], rank: int) -> float:
    return times[len(times) * rank // 100]


def flood(websockets: Sequence[ClientConnection], over: threading.Event, pause_s: float, request: Request) -> None:
    """Send a request of a session of its own every `pause_s` seconds, over one after the other of the connections.

    Answers are read if they are there, and dropped.
    """
    rng = random.Random(1)
    for number, websocket in enumerate(cycle(websockets)):
        if over.wait(pause_s):
            return
        websocket.send(encode(Complete(number, request(f"f/{number}", rng))))
        with suppress(TimeoutError):
            while True:
                websocket.recv(0)


def cold(rng: random.Random, chars: int) -> Prompt:
    """A prompt like no other."""
    words = "".join(f"{rng.randrange(10**6)} = {rng.randrange(10**6)}\n" for _ in range(100))
    return Prompt(words * (chars // len(words) + 1), "\n")


def assert_answered_beside(core: Core, attack: Callable[[threading.Event], None], name: str, keys: int = 80) -> None:
    """That a typist waits less than seconds, as where a client could take up the core, while the attack runs."""
    alone = typist(core, keys)
    with beside(attack):
        attacked = typist(core, keys)
    figures = [f"{percentile(times, rank):.0f}" for times in (alone, attacked) for rank in (50, 95)]
    print(f"\n{name}: alone p50 {figures[0]} p95 {figures[1]}, beside p50 {figures[2]} p95 {figures[3]} ms")  # noqa: T201
    assert percentile(attacked, 95) < 1000


@contextmanager
def beside(attack: Callable[[threading.Event], None]) -> Iterator[None]:
    """Let an attack run, in a thread, while the block does."""
    over = threading.Event()
    thread = threading.Thread(target=attack, args=(over,))
    thread.start()
    try:
        time.sleep(1)
        yield
    finally:
        over.set()
        thread.join(PATIENCE_S)
