"""An engine behind the real vllm-router, in front of two servers with a scripted model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bench.llama_server import free_port, server_process
from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from inference.loading.options import EngineOptions
from inference.remote.connecting import connect
from inference.remote.engine import RemoteEngine
from inference.text.tokenization import read_tokenizer
from protocol.errors import MidfillError
from protocol.messages import StopRule
from tests.inference.remote.fake_servers import PATIENCE_S, FakeServer, until
from tests.inference.remote.test_engine import ask
from tests.inference.remote.test_replicas import SESSIONS, Cluster, homes

pytestmark = pytest.mark.engines

BLOCK_TOKENS = 32
METRICS = f'# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{{block_size="{BLOCK_TOKENS}"}} 1.0\n'
CHECK_SECONDS = "1"


class PacedServer(FakeServer):
    """Writes a token in each 20 ms: a router sees that its client has gone when it passes the next one on."""

    async def pace(self, number: int) -> None:
        await asyncio.sleep(0.02)
        await super().pace(number)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def cluster(opened: ExitStack) -> Cluster:
    """Two servers, which obey the constraint that vLLM obeys and report its blocks."""
    folder = BUNDLED_FOLDERS["tiny"]
    tokenizer = read_tokenizer(folder / "tokenizer.json")
    states = [
        PacedServer(tokenizer, context=4096, model=str(folder), obeys=("structured_outputs",), metrics=METRICS)
        for _ in range(2)
    ]
    cluster = Cluster("openai", states)
    opened.callback(cluster.close)
    return cluster


@pytest.fixture
def engine(cluster: Cluster, engines_folder: Path, opened: ExitStack) -> RemoteEngine:
    """Connected to the router, whose options are those that the documentation names."""
    port = free_port()
    command = [str(engines_folder / "router" / "bin" / "vllm-router"), "--policy", "consistent_hash"]
    command += ["--worker-urls", *cluster.urls, "--port", str(port)]
    command += ["--health-check-interval-secs", CHECK_SECONDS, "--prometheus-port", str(free_port())]
    opened.enter_context(server_process(command, port, "/health", 10 * PATIENCE_S))
    engine = connect(EngineOptions(engine=f"openai=http://127.0.0.1:{port}", healing="on"))
    opened.callback(engine.close)
    return engine


def test_sessions_stay_on_their_server_and_are_hot(engine: RemoteEngine, cluster: Cluster) -> None:
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
    until(lambda: _answers(engine, SESSIONS))
    moved = homes(engine, cluster, SESSIONS)
    assert set(moved.values()) == {0}
    assert all(moved[session] == number for session, number in first.items() if number == 0)


def test_a_cancelled_request_is_closed_at_the_server_with_the_next_token(
    engine: RemoteEngine, cluster: Cluster
) -> None:
    for state in cluster.states:
        state.script = "word " * 400
    cancelled = threading.Event()
    run = engine.begin(ask(max_tokens=300, stop=StopRule(indent=0)), cancelled.is_set)
    until(lambda: run.progress.generated > 1)
    cancelled.set()
    engine.wake()
    engine.step()
    until(lambda: any(state.disconnects.acquire(blocking=False) for state in cluster.states))


def _answers(engine: RemoteEngine, sessions: list[str]) -> bool:
    """Whether all sessions get texts."""
    try:
        return all(engine.complete(ask(session=session)).text for session in sessions)
    except MidfillError:  # the router answers with errors until it knows of the death
        return False
