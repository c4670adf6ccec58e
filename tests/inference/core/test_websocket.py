from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from websockets.sync.client import ClientConnection

from inference.core.lifecycle import ConnectedClients
from inference.core.queue import MAX_WAITING
from inference.core.scheduler import Scheduler
from inference.core.websocket import Connection
from inference.loading.options import EngineOptions
from protocol.errors import Cancelled
from protocol.messages import PROTOCOL_VERSION, Completion, CompletionRequest, CoreStatus, Prompt
from protocol.wire import (
    Cancel,
    ClientMessage,
    Complete,
    Completed,
    Failed,
    Forget,
    Kept,
    Prefilled,
    StatusChanged,
    Stop,
    Unload,
    decode_core,
    encode,
)
from tests.inference.serving import PATIENCE_S, Served, receive, serving

pytestmark = pytest.mark.usefixtures("quick_core")


@dataclass(frozen=True)
class Core:
    """One that serves; `answers` are all that any client got."""

    served: Served
    answers: queue.Queue[Completion | Exception | None]


@contextmanager
def running(options: EngineOptions) -> Iterator[Core]:
    answers = queue.Queue[Completion | Exception | None]()
    with serving(options, observe=lambda request: answers.put(request.outcome)) as served:
        yield Core(served, answers)


@pytest.fixture
def core(tiny_checkpoint: Path) -> Iterator[Core]:
    with running(EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1)) as core:
        yield core


def send(websocket: ClientConnection, message: ClientMessage) -> None:
    websocket.send(encode(message))


def request(text: str = "x", max_tokens: int = 4, session: str = "a.py") -> CompletionRequest:
    return CompletionRequest(session, Prompt("def f():\n", "\n", text), max_tokens)


def test_websocket_answers_and_reports_its_status(core: Core) -> None:
    with core.served.connect() as websocket:
        first = decode_core(str(websocket.recv(PATIENCE_S)))
        assert isinstance(first, StatusChanged)
        assert (first.status.state, first.status.model, first.protocol_version) == ("unloaded", "tiny", PROTOCOL_VERSION)
        send(websocket, Complete(7, request()))
        states = []
        while isinstance(message := decode_core(str(websocket.recv(PATIENCE_S))), StatusChanged):
            states.append(message.status.state)
            last = message.status
        assert set(states) == {"loading", "ready"}
        assert states[-1] == "ready"
        assert (last.device, last.context_tokens) == ("cpu", 512)
        assert last.chars_per_token > 1
        assert isinstance(message, Completed)
        assert message.id == 7
        assert message.completion.usage.recomputed_tokens == message.completion.usage.prompt_tokens
        send(websocket, Complete(8, request("xy")))
        answer = receive(websocket)
        assert isinstance(answer, Completed)
        assert answer.completion.usage.recomputed_tokens <= 2


def long_request(text: str) -> CompletionRequest:
    """A prompt of several chunks, which makes something resident only."""
    return CompletionRequest("a.py", Prompt("value = 1\n" * 100 + text, "\n"), max_tokens=0)


def test_a_prefill_that_takes_long_is_followed(tiny_checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.core.websocket.LONG_PREFILL_S", 0.0)
    monkeypatch.setattr("inference.core.websocket.TELL_EVERY_S", 0.0)
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1, prefill_chunk=64)
    with running(options) as core, core.served.connect() as websocket:
        send(websocket, Complete(7, long_request("")))
        shares = []
        while isinstance(message := receive(websocket), Prefilled):
            assert message.id == 7
            shares.append((message.tokens, message.of))
        assert isinstance(message, Completed)
        total = message.completion.usage.prompt_tokens
        assert shares == [(tokens, total) for tokens in range(64, total, 64)]
        send(websocket, Complete(8, long_request("")))
        assert isinstance(receive(websocket), Completed)  # resident


def test_a_short_prefill_is_not_mentioned(tiny_checkpoint: Path) -> None:
    options = EngineOptions(str(tiny_checkpoint), context_tokens=512, threads=1, prefill_chunk=64)
    with running(options) as core, core.served.connect() as websocket:
        send(websocket, Complete(7, long_request("")))
        assert isinstance(receive(websocket), Completed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "not a midfill message"),
        ("{}", "not a midfill message"),
        ('{"type": "Complete", "id": 1}', "request"),
        ('{"type": "Complete", "id": 1, "request": {"session": 5}}', "session"),
        ('{"type": "Nonsense"}', "Nonsense"),
        ("[]", "not a midfill message"),
        ("[" * 100_000, "not a midfill message"),
        (b"\x00", "binary frame"),
    ],
)
def test_malformed_message_is_answered_and_the_connection_kept(core: Core, text: str | bytes, message: str) -> None:
    with core.served.connect() as websocket:
        websocket.send(text)
        answer = receive(websocket)
        assert isinstance(answer, Failed)
        assert (answer.id, answer.code) == (1 if '"id": 1' in str(text) else None, "bad_input")
        assert message in answer.message
        send(websocket, Complete(1, request()))
        assert isinstance(receive(websocket), Completed)


def test_bad_request_fails_alone(core: Core) -> None:
    with core.served.connect() as websocket:
        send(websocket, Complete(1, request(max_tokens=-1)))
        answer = receive(websocket)
        assert isinstance(answer, Failed)
        assert (answer.id, answer.code) == (1, "bad_input")
        send(websocket, Complete(2, request(text="\ud800")))
        assert isinstance(receive(websocket), Completed)


def test_superseded_and_cancelled_requests_are_answered_once(core: Core) -> None:
    with core.served.connect() as websocket:
        for number in range(10):
            send(websocket, Complete(number, request("x" * number, max_tokens=100)))
        send(websocket, Complete(10, request("z", session="b.py")))
        send(websocket, Cancel(10))
        send(websocket, Cancel(99))
        send(websocket, Forget("c.py"))
        answers = {}
        for _ in range(11):
            answer = receive(websocket)
            assert isinstance(answer, Completed | Failed)
            assert answer.id not in answers
            answers[answer.id] = answer
        assert set(answers) == set(range(11))
        assert isinstance(answers[9], Completed)
        assert {answer.code for answer in answers.values() if isinstance(answer, Failed)} <= {"cancelled"}


def test_two_connections_do_not_supersede_each_other(core: Core) -> None:
    with core.served.connect() as one, core.served.connect() as two:
        send(one, Complete(1, request("one")))
        send(two, Complete(1, request("two")))
        assert isinstance(receive(one), Completed)
        assert isinstance(receive(two), Completed)


def test_disconnect_cancels(core: Core) -> None:
    with core.served.connect() as websocket:
        send(websocket, Complete(1, request(max_tokens=400)))
        decode_core(str(websocket.recv(PATIENCE_S)))
        assert core.served.clients.connections == 1
    assert isinstance(core.answers.get(timeout=PATIENCE_S), Cancelled)
    assert core.served.clients.connections == 0


def test_last_status_reported_is_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the status changes while a client connects."""
    told: list[str] = []
    clients = ConnectedClients()
    with running(EngineOptions(str(tmp_path))) as core:
        status = CoreStatus("loading", "tiny")
        monkeypatch.setattr(Scheduler, "status", property(lambda _: status))
        listen = clients.listen

        @contextmanager
        def listen_late(listener: Callable[[CoreStatus], None]) -> Iterator[None]:
            nonlocal status
            with listen(listener):
                before, status = status, CoreStatus("ready", "tiny")
                clients.announce(status)
                clients.announce(before)  # by a thread that was held up
                yield

        monkeypatch.setattr(clients, "listen", listen_late)
        Connection(lambda text: told.append(str(decode_core(text))), core.served.scheduler, clients, core.served.shutdown, "late")
    assert len(told) == 3
    assert all("ready" in message for message in told)


def test_client_with_too_much_in_line_is_told_that_the_core_is_busy(core: Core) -> None:
    with core.served.connect() as websocket:
        for number in range(2 * MAX_WAITING):
            send(websocket, Complete(number, request(max_tokens=16, session=f"{number}")))
        answers = [receive(websocket) for _ in range(2 * MAX_WAITING)]
        assert {answer.code for answer in answers if isinstance(answer, Failed)} == {"busy"}
        assert sum(isinstance(answer, Completed) for answer in answers) >= MAX_WAITING


def test_same_id_twice_is_refused(core: Core) -> None:
    with core.served.connect() as websocket:
        send(websocket, Complete(1, request(max_tokens=400)))
        send(websocket, Complete(1, request(session="b.py")))
        answer = receive(websocket)
        assert isinstance(answer, Failed)
        assert "still running" in answer.message


def test_an_unknown_field_fails_its_own_request(core: Core) -> None:
    """As a client of another version sends it."""
    with core.served.connect() as websocket:
        send(websocket, Complete(1, request(max_tokens=100)))
        websocket.send(encode(Complete(2, request(session="b.py")))[:-1] + ', "new_field": 1}')
        answers = [receive(websocket), receive(websocket)]
        assert {answer.id: type(answer) for answer in answers} == {1: Completed, 2: Failed}  # type: ignore[union-attr]


def test_the_model_is_unloaded_on_request_and_loaded_again(core: Core) -> None:
    with core.served.connect() as websocket:
        send(websocket, Complete(1, request()))
        assert isinstance(receive(websocket), Completed)
        send(websocket, Unload())
        status = decode_core(str(websocket.recv(PATIENCE_S)))
        assert isinstance(status, StatusChanged)
        assert status.status.state == "unloaded"
        send(websocket, Complete(2, request()))
        assert isinstance(receive(websocket), Completed)


def test_a_core_that_others_use_is_kept_and_one_that_is_stopped_says_so_to_all(core: Core) -> None:
    with core.served.connect() as one, core.served.connect() as two:
        for websocket in (one, two):
            assert isinstance(decode_core(str(websocket.recv(PATIENCE_S))), StatusChanged)
        send(one, Stop("replace"))
        assert receive(one) == Kept("1 other client uses it")
        assert not core.served.shutdown.due
        send(two, Stop("stop"))
        for websocket in (one, two):
            message = decode_core(str(websocket.recv(PATIENCE_S)))
            assert isinstance(message, StatusChanged)
            assert message.status.state == "stopped"
        assert core.served.shutdown.due


def test_the_wish_of_a_client_that_has_left_is_forgotten(core: Core) -> None:
    with core.served.connect() as one:
        with core.served.connect() as two:
            send(two, Stop("replace"))
            receive(two)
        send(one, Complete(1, request()))
        receive(one)
        assert not core.served.shutdown.due
