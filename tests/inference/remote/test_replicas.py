"""Replicas of one model: sessions stay on theirs, a death fails no request that could go on, and liars are refused."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from inference.loading.options import EngineOptions
from inference.remote import connecting, health
from inference.remote.connecting import connect
from inference.remote.engine import RemoteEngine
from inference.remote.request import RemoteRequest
from inference.scheduling.engine_holder import EngineHolder
from inference.scheduling.scheduler import Scheduler
from inference.text.tokenization import TextTokenizer
from protocol.errors import BadInput, BadModel, EngineUnavailable
from protocol.messages import ANONYMOUS, Completion, Prompt
from tests.inference.remote.fake_servers import PATIENCE_S, FakeServer, llama_server, openai_server, serving, until
from tests.inference.remote.test_engine import PREFIX, Answers, ask

SESSIONS = [f"me/{number}" for number in range(24)]
HOLDS = 1  # tokens after which a held stream waits


class Cluster:
    """Fake servers that stop, and listen again at the same address."""

    def __init__(self, kind: str, states: list[FakeServer]) -> None:
        self.kind = kind
        self.states = states
        self.urls = [""] * len(states)
        self._serving: list[AbstractContextManager[str] | None] = [None] * len(states)
        for number in range(len(states)):
            self.start(number)

    @property
    def engine(self) -> str:
        return f"{self.kind}={','.join(self.urls)}"

    def start(self, number: int) -> None:
        make = llama_server if self.kind == "llama-server" else openai_server
        block = serving(make(self.states[number]), urlsplit(self.urls[number]).port or 0)
        self._serving[number], self.urls[number] = block, block.__enter__()

    def stop(self, number: int) -> None:
        block, self._serving[number] = self._serving[number], None
        if block is not None:
            block.__exit__(None, None, None)
        self.states[number].resident.clear()

    def close(self) -> None:
        for number in range(len(self.states)):
            self.states[number].is_silent = False
            self.stop(number)

    def prompts(self, number: int) -> list[list[int]]:
        """The prompts that a server got, without the probes of its constraints."""
        return [body["prompt"] for body in self.states[number].bodies if len(body["prompt"]) > 1]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    monkeypatch.setattr(health, "CHECK_EVERY_S", 0.02)
    monkeypatch.setattr(health, "CHECK_PATIENCE_S", PATIENCE_S)
    monkeypatch.setattr(connecting, "OTHERS_WITHIN_S", 0.2)
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def make_cluster(folder_tokenizer: TextTokenizer, tokenizer_folder: Path, opened: ExitStack) -> Callable[..., Cluster]:
    def make(kind: str = "openai", count: int = 3) -> Cluster:
        states = [FakeServer(folder_tokenizer, model=str(tokenizer_folder)) for _ in range(count)]
        cluster = Cluster(kind, states)
        opened.callback(cluster.close)
        return cluster

    return make


@pytest.fixture
def open_engine(opened: ExitStack) -> Callable[..., RemoteEngine]:
    def open_it(cluster: Cluster, **options: object) -> RemoteEngine:
        engine = connect(EngineOptions(engine=cluster.engine, healing="on", **options))  # type: ignore[arg-type]
        opened.callback(engine.close)
        return engine

    return open_it


Open = Callable[..., RemoteEngine]
MakeCluster = Callable[..., Cluster]
Pair = tuple[Cluster, RemoteEngine, int]


def states_of(engine: RemoteEngine) -> list[str]:
    return [replica.state for replica in engine.replicas]


def homes(engine: RemoteEngine, cluster: Cluster, sessions: list[str]) -> dict[str, int]:
    """The replica that answers each session."""
    found = {}
    for session in sessions:
        before = [len(cluster.prompts(number)) for number in range(len(cluster.states))]
        assert engine.complete(ask(session=session)).text == "alpha beta"
        (found[session],) = [n for n, count in enumerate(before) if len(cluster.prompts(n)) > count]
    return found


@pytest.fixture
def pair(make_cluster: MakeCluster, open_engine: Open) -> Pair:
    """Two replicas, an engine that is connected to them, and the replica of the session me/a."""
    cluster = make_cluster(count=2)
    engine = open_engine(cluster)
    return cluster, engine, homes(engine, cluster, ["me/a"])["me/a"]


def finish(engine: RemoteEngine, *runs: RemoteRequest) -> None:
    while not all(run.has_ended for run in runs):
        engine.step()


@pytest.mark.parametrize("kind", ["openai", "llama-server"])
def test_a_death_moves_the_dead_replicas_sessions_alone_and_they_return(
    kind: str, make_cluster: MakeCluster, open_engine: Open
) -> None:
    cluster = make_cluster(kind)
    engine = open_engine(cluster)
    first = homes(engine, cluster, SESSIONS)
    assert set(first.values()) == {0, 1, 2}
    assert homes(engine, cluster, SESSIONS) == first
    cluster.stop(1)
    moved = homes(engine, cluster, SESSIONS)  # no request fails
    assert {session: number for session, number in moved.items() if first[session] != 1} == {
        session: number for session, number in first.items() if number != 1
    }
    assert set(moved.values()) == {0, 2}
    until(lambda: states_of(engine) == ["up", "down", "up"])
    assert "2 of 3 replicas serve" in engine.notice
    assert cluster.urls[1] in engine.notice
    cluster.start(1)
    until(lambda: states_of(engine) == ["up"] * 3)
    assert homes(engine, cluster, SESSIONS) == first
    assert engine.notice == ""
    replicas = engine.replicas
    assert sum(replica.requests for replica in replicas) == 4 * len(SESSIONS)
    assert [replica.at_work for replica in replicas] == [0, 0, 0]
    assert replicas[0].moved_requests == 0


def test_the_order_of_the_addresses_does_not_place_sessions(make_cluster: MakeCluster, open_engine: Open) -> None:
    cluster = make_cluster()
    first = homes(open_engine(cluster), cluster, SESSIONS)
    cluster.urls.reverse()
    cluster.states.reverse()
    again = homes(open_engine(cluster), cluster, SESSIONS)
    assert again == {session: 2 - number for session, number in first.items()}


def test_anonymous_prompts_stay_by_their_beginning(make_cluster: MakeCluster, open_engine: Open) -> None:
    cluster = make_cluster()
    engine = open_engine(cluster)
    for typed in ("", "x", "xy"):
        for number in range(12):
            engine.complete(ask(typed, session=ANONYMOUS, prompt=Prompt(f"# file {number}\n{PREFIX}", "", typed)))
    places = [Counter(str(prompt[:20]) for prompt in cluster.prompts(number)) for number in range(3)]
    assert sum(map(len, places)) == 12
    assert sum(1 for place in places if place) > 1


@pytest.mark.parametrize("kind", ["openai", "llama-server"])
@pytest.mark.parametrize("break_after", [0, 2])
def test_a_request_goes_on_elsewhere_if_its_client_has_nothing_yet(
    kind: str, break_after: int, make_cluster: MakeCluster, open_engine: Open
) -> None:
    cluster = make_cluster(kind, 2)
    engine = open_engine(cluster)
    home = homes(engine, cluster, ["me/a"])["me/a"]
    cluster.states[home].break_after = break_after
    completion = engine.complete(ask("al", session="me/a"))
    assert (completion.text, completion.finish_reason) == ("pha beta", "stop")
    assert engine.replicas[home].moved_requests == 1
    assert cluster.prompts(0)[-1] == cluster.prompts(1)[-1]
    until(lambda: states_of(engine) == ["up", "up"])  # it answers the check that the failure asked for


def test_text_that_a_client_has_is_never_followed_by_another_replicas(pair: Pair) -> None:
    cluster, engine, home = pair
    cluster.states[home].break_after = 3
    told: list[str] = []
    run = engine.begin(ask(session="me/a"), on_text=told.append)
    finish(engine, run)
    assert told[-1]
    with pytest.raises(EngineUnavailable, match=cluster.urls[home]):
        run.completion()
    assert len(cluster.prompts(1 - home)) == 0


def test_requests_at_a_silent_replica_are_moved(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "CHECK_PATIENCE_S", 3.0)
    monkeypatch.setattr(health, "SILENT_CHECKS", 1)
    cluster, engine, home = pair
    silent = cluster.states[home]
    silent.hold_after = 0
    run = engine.begin(ask(session="me/a"))
    assert silent.streaming.acquire(timeout=PATIENCE_S)
    silent.is_silent = True  # it does not answer its checks either
    finish(engine, run)
    assert run.completion().text == "alpha beta"
    assert states_of(engine)[home] == "down"
    assert "does not answer within" in engine.notice
    silent.is_silent, silent.hold_after = False, None
    until(lambda: states_of(engine) == ["up", "up"])
    assert homes(engine, cluster, ["me/a"]) == {"me/a": home}


def test_a_replica_that_is_too_busy_for_a_check_serves_where_no_other_can(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CHECK_PATIENCE_S", 1.0)
    monkeypatch.setattr(health, "SILENT_CHECKS", 10**6)
    cluster, engine, home = pair
    busy, other = cluster.states[home], cluster.states[1 - home]
    busy.is_silent = True
    until(lambda: states_of(engine)[home] == "suspected")
    assert homes(engine, cluster, ["me/a"]) == {"me/a": 1 - home}
    other.is_silent = True
    until(lambda: states_of(engine) == ["suspected", "suspected"])
    assert not engine.is_gone
    busy.is_silent = other.is_silent = False
    until(lambda: states_of(engine) == ["up", "up"])
    assert homes(engine, cluster, ["me/a"]) == {"me/a": home}


def test_a_slow_replica_is_waited_for(pair: Pair) -> None:
    cluster, engine, home = pair
    slow = cluster.states[home]
    slow.hold_after = HOLDS
    run = engine.begin(ask(session="me/a"))
    assert slow.streaming.acquire(timeout=PATIENCE_S)
    engine.wake()
    assert engine.step() == []
    assert engine.replicas[home].at_work == 1
    slow.go_on.set()
    finish(engine, run)
    assert engine.replicas[home].moved_requests == 0


@pytest.mark.parametrize("status", [429, 500])
def test_a_refusal_is_tried_elsewhere(status: int, pair: Pair) -> None:
    cluster, engine, home = pair
    cluster.states[home].statuses = [status]
    assert engine.complete(ask(session="me/a")).text == "alpha beta"
    assert engine.replicas[home].moved_requests == 1
    assert (states_of(engine)[home] == "up") >= (status == 429)  # a busy replica is not suspected
    until(lambda: states_of(engine) == ["up", "up"])
    cluster.states[home].statuses = [400]
    with pytest.raises(BadInput, match="status 400"):
        engine.complete(ask(session="me/a"))


def test_a_full_replica_is_passed_over(make_cluster: MakeCluster, open_engine: Open) -> None:
    cluster = make_cluster("llama-server", 2)
    engine = open_engine(cluster)
    assert engine.capacity == 4
    first = homes(engine, cluster, SESSIONS)
    home = first[SESSIONS[0]]
    three = [session for session in SESSIONS if first[session] == home][:3]
    for state in cluster.states:
        state.hold_after = HOLDS
    runs = [engine.begin(ask(session=session)) for session in three]
    for state, wanted in ((cluster.states[home], 2), (cluster.states[1 - home], 1)):
        for _ in range(wanted):
            assert state.streaming.acquire(timeout=PATIENCE_S)
    assert sorted(replica.at_work for replica in engine.replicas)[-2:] == [1, 2]
    cluster.stop(1 - home)  # its request finds no free slot, and waits at the server for one
    for state in cluster.states:
        state.go_on.set()
    finish(engine, *runs)
    assert {run.completion().text for run in runs} == {"alpha beta"}
    assert "id_slot" not in cluster.states[home].bodies[-1]


def test_another_model_is_refused_aloud_and_the_right_one_joins(
    make_cluster: MakeCluster, open_engine: Open, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = make_cluster()
    right = cluster.states[0].model
    cluster.states[1].model = "another"
    cluster.states[2].tokens_of = lambda text: list(text.encode())
    engine = open_engine(cluster)
    assert states_of(engine) == ["up", "refused", "refused"]
    for told in (engine.notice, caplog.text):
        assert f"{cluster.urls[1]} serves the model 'another'" in told
        assert f"not that of the model at openai at {cluster.urls[2]}" in told
    assert set(homes(engine, cluster, SESSIONS).values()) == {0}
    cluster.states[1].model, cluster.states[2].tokens_of = right, None
    until(lambda: states_of(engine) == ["up"] * 3)
    cluster.states[1].model = "another"  # while it is up
    until(lambda: states_of(engine)[1] == "refused")


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"context": 300}, "set contextTokens to 300"), ({"obeys": ()}, "set healing to off")],
)
def test_a_replica_that_can_do_less_is_refused(
    change: dict[str, object], reason: str, make_cluster: MakeCluster, open_engine: Open
) -> None:
    cluster = make_cluster(count=2)
    for name, value in change.items():
        setattr(cluster.states[1], name, value)
    engine = open_engine(cluster)
    assert states_of(engine) == ["up", "refused"]
    assert reason in engine.notice


def test_the_first_usable_replica_is_the_measure(
    make_cluster: MakeCluster, open_engine: Open, tokenizer_folder: Path
) -> None:
    cluster = make_cluster()
    cluster.states[0].model, cluster.states[0].tokens_of = "liar", lambda text: list(text.encode())
    cluster.stop(1)
    engine = open_engine(cluster, model=str(tokenizer_folder))
    assert states_of(engine) == ["refused", "down", "up"]


def test_a_replica_that_is_late_joins_later(make_cluster: MakeCluster, open_engine: Open) -> None:
    cluster = make_cluster(count=2)
    cluster.states[0].is_silent = True
    engine = open_engine(cluster)
    assert states_of(engine)[1] == "up"
    cluster.states[0].is_silent = False
    until(lambda: states_of(engine) == ["up", "up"])


def test_without_a_usable_replica_all_reasons_are_told(make_cluster: MakeCluster, open_engine: Open) -> None:
    cluster = make_cluster(count=2)
    cluster.stop(0)
    cluster.states[1].tokens_of = lambda text: list(text.encode())
    with pytest.raises(EngineUnavailable, match=rf"none of the 2 .*{cluster.urls[0]}.*{cluster.urls[1]}"):
        open_engine(cluster)
    cluster.start(0)
    cluster.states[0].tokens_of = cluster.states[1].tokens_of
    with pytest.raises(BadModel, match="none of the 2"):
        open_engine(cluster)


def test_all_replicas_die_and_one_comes_back(make_cluster: MakeCluster, open_engine: Open, quick_core: None) -> None:
    cluster = make_cluster(count=2)
    holder = EngineHolder("remote", lambda _: open_engine(cluster), lambda _: None)
    scheduler = Scheduler(holder)
    answers = Answers(scheduler)
    answers.submit("first", ask())
    assert isinstance(answers.wait("first")[0], Completion)
    for number in (0, 1):
        cluster.stop(number)
    answers.submit("failed", ask())
    (failed,) = answers.wait("failed")
    assert isinstance(failed, EngineUnavailable)
    assert all(url in str(failed) for url in cluster.urls)
    cluster.start(1)
    deadline = time.monotonic() + PATIENCE_S
    answer: object = None
    while not isinstance(answer, Completion):
        assert time.monotonic() < deadline
        name = str(time.monotonic())
        answers.submit(name, ask())
        (answer,) = answers.wait(name)
    assert [replica.state for replica in scheduler.replicas] == ["down", "up"]
    assert scheduler.close(PATIENCE_S)


def test_an_excluded_document_is_erased_at_every_replica(make_cluster: MakeCluster, open_engine: Open) -> None:
    cluster = make_cluster("llama-server", 2)
    engine = open_engine(cluster)
    clients = [f"client-{number}/secret" for number in range(24)]
    assert len(set(homes(engine, cluster, clients).values())) == 2
    engine.forget("me/secret")
    assert [len(state.erased) for state in cluster.states] == [2, 2]


def test_the_session_header_has_the_name_that_a_router_wants(make_cluster: MakeCluster, open_engine: Open) -> None:
    cluster = make_cluster(count=1)
    engine = open_engine(cluster, engine_session_header="x-user-id")
    cluster.states[0].model += "," + cluster.states[0].model  # the fake keeps caches by X-Session-ID
    with pytest.raises(EngineUnavailable):
        engine.complete(ask())
    assert cluster.states[0].headers[-1]["x-user-id"]
    assert "x-session-id" not in cluster.states[0].headers[-1]
    with pytest.raises(BadInput, match="engine_session_header = 'no header'"):
        open_engine(cluster, engine_session_header="no header")
