"""An engine behind a real router, vllm-router or HAProxy, in front of two servers with a scripted model."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bench.llama_server import free_port, server_process
from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from inference.loading.options import EngineOptions
from inference.remote.connecting import connect
from inference.remote.engine import RemoteEngine
from inference.remote.openai import BLOCK_TOKENS
from inference.text.tokenization import read_tokenizer
from protocol.errors import MidfillError
from protocol.messages import StopRule
from tests.inference.remote.fake_servers import PATIENCE_S, FakeServer, openai_server, serving
from tests.inference.remote.test_engine import ask
from tests.inference.requests import begin
from tests.inference.serving import wait_until

pytestmark = pytest.mark.engines

ROOT = Path(__file__).parents[2]
CHECK_SECONDS = "1"
SESSIONS = [f"me/{number}" for number in range(24)]


class PacedServer(FakeServer):
    """Writes a token in each 20 ms: a router sees that its client has gone when it passes the next one on."""

    async def pace(self, number: int) -> None:
        await asyncio.sleep(0.02)
        await super().pace(number)


class Cluster:
    """Fake servers that stop, and listen again at the same address."""

    def __init__(self, states: list[FakeServer]) -> None:
        self.states = states
        self.urls = [""] * len(states)
        self._serving = [ExitStack() for _ in states]
        for number in range(len(states)):
            self.start(number)

    def start(self, number: int) -> None:
        port = urlsplit(self.urls[number]).port or 0
        self.urls[number] = self._serving[number].enter_context(serving(openai_server(self.states[number]), port))

    def stop(self, number: int) -> None:
        self._serving[number].close()
        self.states[number].resident.clear()

    def close(self) -> None:
        for number in range(len(self.states)):
            self.stop(number)

    def prompts(self, number: int) -> list[list[int]]:
        """The prompts that a server got, without the probes of its constraints."""
        return [body["prompt"] for body in self.states[number].bodies if len(body["prompt"]) > 1]


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def cluster(opened: ExitStack) -> Cluster:
    """Two servers, which obey the constraint that vLLM obeys and report its blocks."""
    folder = BUNDLED_FOLDERS["tiny"]
    tokenizer = read_tokenizer(folder / "tokenizer.json")
    states = [PacedServer(tokenizer, context=4096, model=str(folder), obeys=("structured_outputs",)) for _ in range(2)]
    cluster = Cluster(states)
    opened.callback(cluster.close)
    return cluster


def vllm_router(urls: list[str], port: int, engines_folder: Path) -> list[str]:
    """The command of vllm-router, with the option that the documentation names."""
    command = [str(engines_folder / "router" / "bin" / "vllm-router"), "--policy", "consistent_hash"]
    command += ["--worker-urls", *urls, "--port", str(port)]
    return [*command, "--health-check-interval-secs", CHECK_SECONDS, "--prometheus-port", str(free_port())]


def haproxy(urls: list[str], port: int, folder: Path) -> list[str]:
    """The command of HAProxy with the configuration in deploy/, whose addresses are replaced."""
    if (program := shutil.which("haproxy")) is None:
        pytest.skip("there is no program haproxy")
    text = (ROOT / "deploy" / "kubernetes" / "haproxy.cfg").read_text(encoding="utf-8")
    for number, url in enumerate(urls):
        text = text.replace(f'"vllm-{number}${{VLLM_DOMAIN}}:8000"', url.removeprefix("http://"))
    assert "VLLM_DOMAIN" not in text
    (folder / "haproxy.cfg").write_text(text.replace("bind :8000", f"bind 127.0.0.1:{port}"))
    return [program, "-f", str(folder / "haproxy.cfg")]


@pytest.fixture(params=["vllm-router", "haproxy"])
def engine(
    request: pytest.FixtureRequest, cluster: Cluster, engines_folder: Path, opened: ExitStack, tmp_path: Path
) -> RemoteEngine:
    """Connected to the router."""
    port = free_port()
    if request.param == "haproxy":
        command = haproxy(cluster.urls, port, tmp_path)
    else:
        command = vllm_router(cluster.urls, port, engines_folder)
    opened.enter_context(server_process(command, port, "/health", 10 * PATIENCE_S))
    engine = connect(EngineOptions(engine=f"openai=http://127.0.0.1:{port}", healing="on"))
    opened.callback(engine.close)
    return engine


def homes(engine: RemoteEngine, cluster: Cluster, sessions: list[str]) -> dict[str, int]:
    """The server that answers each session."""
    found = {}
    for session in sessions:
        before = [len(cluster.prompts(number)) for number in range(len(cluster.states))]
        assert engine.complete(ask(session=session)).text == "alpha beta"
        (found[session],) = [n for n, count in enumerate(before) if len(cluster.prompts(n)) > count]
    return found


def test_sessions_stay_on_their_server_and_hit_the_cache(engine: RemoteEngine, cluster: Cluster) -> None:
    first = homes(engine, cluster, SESSIONS)
    assert set(first.values()) == {0, 1}
    assert homes(engine, cluster, SESSIONS) == first
    for session in SESSIONS:
        usage = engine.complete(ask("x = ", session=session)).usage
        assert usage.block_tokens == BLOCK_TOKENS
        assert usage.recomputed_tokens <= BLOCK_TOKENS + len("x = ")


def test_token_healing_passes_the_router(engine: RemoteEngine, cluster: Cluster) -> None:
    assert engine.complete(ask("al")).text == "pha beta"
    assert any("structured_outputs" in state.bodies[-1] for state in cluster.states if state.bodies)


def test_a_dead_servers_sessions_move_alone(engine: RemoteEngine, cluster: Cluster) -> None:
    first = homes(engine, cluster, SESSIONS)
    cluster.stop(1)
    wait_until(lambda: _answers(engine, SESSIONS))
    moved = homes(engine, cluster, SESSIONS)
    assert set(moved.values()) == {0}
    assert all(moved[session] == number for session, number in first.items() if number == 0)


def test_a_cancelled_request_is_closed_at_the_server_with_the_next_token(engine: RemoteEngine, cluster: Cluster) -> None:
    for state in cluster.states:
        state.script = "word " * 400
    run = begin(engine, ask(max_tokens=300, stop=StopRule(indent=0)))
    wait_until(lambda: engine._at_work[0].generated > 1)
    run.cancelled = True
    engine.wake()
    engine.step()
    wait_until(lambda: any(state.disconnects.acquire(blocking=False) for state in cluster.states))


def _answers(engine: RemoteEngine, sessions: list[str]) -> bool:
    """Whether all sessions get texts."""
    try:
        return all(engine.complete(ask(session=session)).text for session in sessions)
    except MidfillError:  # the router answers with errors until it knows of the death
        return False
