from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from inference.checkpoints.hub import ReportProgress
from inference.core.engine_holder import EngineHolder
from inference.core.queue import MAX_CHORES
from inference.core.scheduler import Scheduler
from inference.engine.engine import Engine
from inference.engine.interface import DeviceHooks, EngineInfo
from inference.engine.request import Request
from inference.engine.sessions import session_key
from kv_store.interface import SessionKey, StoreStats
from kv_store.purges import digest
from protocol.errors import BadModel, Cancelled, EngineUnavailable, MidfillError
from protocol.messages import Completion, CompletionRequest, CoreStatus, Prompt, Usage

pytestmark = pytest.mark.usefixtures("quick_core")

USAGE = Usage(1, 1, 1, 1, 0.0, 0.0, 0.0)
PATIENCE_S = 100.0


class SteppedEngine:
    """Stands in for an engine: forwards are shared by all that is at work, and the test lets them happen one by one."""

    info = EngineInfo("stepped", "none", 128, 3.0)
    device = DeviceHooks()
    notice = ""
    is_gone = False

    def __init__(self, capacity: int = 1) -> None:
        self.capacity = capacity
        self.running: dict[Request, int] = {}  # with the forwards that it still needs
        self.steps = threading.Semaphore(0)
        self.started: list[str] = []
        self.begun = threading.Semaphore(0)
        self.forgotten: list[str] = []
        self.released: list[SessionKey] = []
        self.saved = threading.Semaphore(0)
        self.closed = False
        self.closed_with: float | None = None
        self.forwards_needed = 1

    def begin(self, request: Request) -> None:
        """Each needs some forwards, and then says its prefix."""
        assert len(self.running) < self.capacity
        request.start()
        prefix = request.spec.prompt.prefix
        self.started.append(prefix)
        if prefix == "explode":
            request.outcome = RuntimeError("boom")
        elif prefix == "at once":
            request.outcome = Completion(prefix, "eos", USAGE)
        else:
            self.running[request] = self.forwards_needed
        self.begun.release()

    def wait_begun(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=PATIENCE_S)

    def drop_unwanted(self) -> list[Request]:
        dropped = [request for request in self.running if request.is_unwanted]
        for request in dropped:
            del self.running[request]
            request.outcome = Completion("", "cancelled", USAGE)
        return dropped

    def step(self) -> list[Request]:
        ended = self.drop_unwanted()
        if self.running:
            assert self.steps.acquire(timeout=PATIENCE_S)
            if next(iter(self.running)).spec.prompt.prefix == "break down":
                raise AssertionError("broken")
            for request in [request for request in self.running if not request.is_prefetch] or list(self.running):
                self.running[request] -= 1
                if self.running[request] == 0:
                    del self.running[request]
                    request.outcome = Completion(request.spec.prompt.prefix, "eos", USAGE)
                    ended.append(request)
        return ended

    def wake(self) -> None:
        """A step waits for the test alone."""

    def forget(self, document: str) -> None:
        self.forgotten.append(document)

    def documents(self) -> set[str]:
        return {"secret.py", "open.py"}

    def stats(self) -> StoreStats:
        return StoreStats(tiers=(), evicted_tokens=0)

    def release(self, session: SessionKey) -> None:
        self.released.append(session)

    def save(self, seconds: float, *, snapshots: bool) -> bool:
        self.saved.release()
        return True

    def close(self, save_s: float | None = None) -> None:
        self.closed_with = save_s
        self.closed = True


@dataclass
class Listener:
    answer: Completion | MidfillError | None = None
    times: int = 0
    told: threading.Event = field(default_factory=threading.Event)
    asked: Request = field(init=False)

    def __call__(self, request: Request) -> None:
        assert not isinstance(request.outcome, Exception) or isinstance(request.outcome, MidfillError)
        self.answer = request.outcome
        self.times += 1
        self.told.set()

    def wait(self) -> Completion | MidfillError | None:
        assert self.told.wait(PATIENCE_S)
        return self.answer

    def text(self) -> str:
        answer = self.wait()
        assert isinstance(answer, Completion), repr(answer)
        return answer.text


@pytest.fixture
def engine() -> SteppedEngine:
    return SteppedEngine()


@pytest.fixture
def scheduler(engine: SteppedEngine) -> Iterator[Scheduler]:
    scheduler = start(lambda progress: engine)
    yield scheduler
    engine.steps.release(100)
    scheduler.close()


def start(
    load: Callable[[ReportProgress], object],
    on_status: Callable[[CoreStatus], None] = lambda status: None,
    unload_after_s: float | None = None,
) -> Scheduler:
    def load_engine(progress: ReportProgress) -> Engine:
        return load(progress)  # type: ignore[return-value]

    return Scheduler(EngineHolder("stepped", load_engine, on_status), unload_after_s)


def ask(
    scheduler: Scheduler,
    text: str,
    session: str = "a.py",
    prefetch: bool = False,
    client: str = "",
    alternatives: int = 0,
    user: str = "",
) -> Listener:
    listener = Listener()
    request = CompletionRequest(session, Prompt(text, ""), max_tokens=0 if prefetch else 8, alternatives=alternatives)
    listener.asked = Request(request, client, user, listener)
    scheduler.submit(listener.asked)
    return listener


def test_what_loading_needs_is_imported_before_the_first_request() -> None:
    imported = threading.Event()
    holder = EngineHolder("model", lambda _: SteppedEngine(), lambda _: None, import_early=imported.set)
    scheduler = Scheduler(holder)
    assert imported.wait(PATIENCE_S)
    assert scheduler.status.state == "unloaded"
    scheduler.close()


def test_answers_come_with_the_time_in_line(scheduler: Scheduler, engine: SteppedEngine) -> None:
    engine.steps.release(2)
    first, second = ask(scheduler, "1", "a.py"), ask(scheduler, "2", "b.py")
    assert (first.text(), second.text()) == ("1", "2")
    assert isinstance(second.answer, Completion)
    assert second.answer.usage.queue_ms > 0
    assert not engine.closed


def test_newest_supersedes_what_waits_and_what_runs(scheduler: Scheduler, engine: SteppedEngine) -> None:
    running = ask(scheduler, "1")
    engine.wait_begun()
    waiting = ask(scheduler, "2")
    newest = ask(scheduler, "3")
    assert isinstance(waiting.wait(), Cancelled)
    assert not running.told.is_set()
    engine.steps.release(1)  # the forward that it was in
    assert isinstance(running.wait(), Cancelled)
    engine.steps.release(1)
    assert newest.text() == "3"
    assert engine.started == ["1", "3"]


def test_a_prefetch_gives_way_and_goes_on(scheduler: Scheduler, engine: SteppedEngine) -> None:
    engine.forwards_needed = 3
    prefetch = ask(scheduler, "prefetch", "a.py", prefetch=True)
    engine.wait_begun()
    other_prefetch = ask(scheduler, "later", "c.py", prefetch=True)
    real = ask(scheduler, "real", "b.py")
    engine.steps.release(1 + 3)  # one forward of the prefetch, then the request
    assert real.text() == "real"
    engine.steps.release(6)
    assert prefetch.text() == "prefetch"
    assert other_prefetch.text() == "later"
    assert engine.started == ["prefetch", "real", "later", "prefetch"]


def test_a_prefetch_is_not_resumed_once_superseded(scheduler: Scheduler, engine: SteppedEngine) -> None:
    prefetch = ask(scheduler, "prefetch", prefetch=True)
    engine.wait_begun()
    real = ask(scheduler, "real")
    engine.steps.release(2)
    assert isinstance(prefetch.wait(), Cancelled)
    assert real.text() == "real"
    assert engine.started == ["prefetch", "real"]


def test_cancel(scheduler: Scheduler, engine: SteppedEngine) -> None:
    running = ask(scheduler, "1", "a.py")
    engine.wait_begun()
    waiting = ask(scheduler, "2", "b.py")
    scheduler.cancel(waiting.asked)
    assert isinstance(waiting.answer, Cancelled)
    scheduler.cancel(running.asked)
    engine.steps.release(1)
    assert isinstance(running.wait(), Cancelled)
    scheduler.cancel(12345)
    assert (running.times, waiting.times) == (1, 1)


@pytest.fixture
def roomy() -> Iterator[tuple[Scheduler, SteppedEngine]]:
    """A scheduler whose engine has room for three requests."""
    engine = SteppedEngine(capacity=3)
    scheduler = start(lambda progress: engine)
    engine.steps.release(1)
    assert ask(scheduler, "loads the model").text() == "loads the model"
    engine.wait_begun()
    engine.started.clear()
    yield scheduler, engine
    engine.steps.release(1000)
    scheduler.close()


def test_requests_beyond_the_room_wait_in_line(roomy: tuple[Scheduler, SteppedEngine]) -> None:
    scheduler, engine = roomy
    engine.forwards_needed = 2
    listeners = [ask(scheduler, name, name) for name in "abcde"]
    engine.steps.release(6)
    assert [listener.text() for listener in listeners] == list("abcde")
    assert engine.started == list("abcde")


def test_a_prefetch_is_begun_when_nothing_is_at_work(roomy: tuple[Scheduler, SteppedEngine]) -> None:
    scheduler, engine = roomy
    engine.forwards_needed = 2
    real = ask(scheduler, "real", "a")
    engine.wait_begun()
    prefetch = ask(scheduler, "prefetch", "b", prefetch=True)
    engine.steps.release(1)
    assert not engine.begun.acquire(timeout=0.05)
    engine.steps.release(1)
    assert real.text() == "real"
    engine.wait_begun()
    engine.steps.release(2)
    assert prefetch.text() == "prefetch"


def fill(scheduler: Scheduler, engine: SteppedEngine, client: str, alternatives: int = 0) -> list[Listener]:
    """Let a client take up all room with requests that need many forwards, and have more in line."""
    engine.forwards_needed = 100
    listeners = [
        ask(scheduler, f"{client} {number}", f"{number}", client=client, alternatives=alternatives) for number in range(10)
    ]
    engine.steps.release(1)
    engine.wait_begun(engine.capacity)
    engine.forwards_needed = 1
    return listeners


def test_flood_of_one_client_delays_another_by_one_forward(roomy: tuple[Scheduler, SteppedEngine]) -> None:
    scheduler, engine = roomy
    flood = fill(scheduler, engine, "flood")
    for number in range(3):
        keystroke = ask(scheduler, f"key {number}", client="other")
        engine.steps.release(2)  # the one that was under way, and its own
        assert keystroke.text() == f"key {number}"
    engine.forwards_needed = 1
    engine.steps.release(500)
    assert [listener.text() for listener in flood] == [f"flood {number}" for number in range(10)]


@pytest.mark.parametrize("kind", ["prefetch", "alternatives"])
def test_what_is_not_urgent_gives_way_to_another_client_where_there_is_one_place(
    scheduler: Scheduler, engine: SteppedEngine, kind: str
) -> None:
    engine.forwards_needed = 100
    slow = ask(scheduler, "slow", client="a", prefetch=kind == "prefetch", alternatives=16 if kind == "alternatives" else 0)
    engine.wait_begun()
    engine.forwards_needed = 1
    keystroke = ask(scheduler, "quick", client="b")
    engine.steps.release(2)
    assert keystroke.text() == "quick"
    engine.steps.release(1)
    assert slow.text() == "slow"


def test_what_other_cores_purge_meanwhile_is_forgotten_however_much_it_is(scheduler: Scheduler, engine: SteppedEngine) -> None:
    listener = ask(scheduler, "1")
    engine.wait_begun()
    for document in ("secret.py", *map(str, range(MAX_CHORES))):
        scheduler.forget_purged({digest(document)})
    engine.steps.release(1)
    assert listener.text() == "1"
    assert scheduler.close(PATIENCE_S)
    assert engine.forgotten == ["secret.py"]


def test_a_user_with_many_connections_has_one_users_share(scheduler: Scheduler, engine: SteppedEngine) -> None:
    ask(scheduler, "at work", client="ws-0", user="many")
    engine.wait_begun()
    many = [ask(scheduler, f"many {number}", client=f"ws-{number + 1}", user="many") for number in range(6)]
    one = [ask(scheduler, f"one {number}", f"{number}", client="ws-9", user="one") for number in range(2)]
    engine.steps.release(9)
    assert all(listener.text() for listener in (*many, *one))
    assert engine.started[1:5] == ["many 0", "one 0", "many 1", "one 1"]


def test_answer_comes_though_counting_it_fails(engine: SteppedEngine) -> None:
    def observe(request: Request) -> None:
        raise RuntimeError("cannot count")

    scheduler = Scheduler(EngineHolder("stepped", lambda progress: engine, lambda status: None), observe=observe)  # type: ignore[arg-type, return-value]
    engine.steps.release(2)
    assert ask(scheduler, "1").text() == "1"
    assert ask(scheduler, "2").text() == "2"
    scheduler.close()


def test_what_needs_no_forward_is_answered_at_once(roomy: tuple[Scheduler, SteppedEngine]) -> None:
    scheduler, _ = roomy
    assert ask(scheduler, "at once").text() == "at once"


def test_unexpected_failure_is_delivered_and_the_thread_goes_on(scheduler: Scheduler, engine: SteppedEngine) -> None:
    answer = ask(scheduler, "explode").wait()
    assert isinstance(answer, MidfillError)
    assert "boom" in str(answer)
    engine.steps.release(1)
    assert ask(scheduler, "fine").text() == "fine"


def test_an_engine_that_breaks_down_is_loaded_anew(roomy: tuple[Scheduler, SteppedEngine]) -> None:
    scheduler, engine = roomy
    listeners = [ask(scheduler, name, name) for name in ("break down", "b")]
    engine.steps.release(2)
    for listener in listeners:
        assert "broken" in str(listener.wait())
    assert engine.closed
    engine.running.clear()
    engine.steps.release(2)
    assert ask(scheduler, "fine").text() == "fine"


def test_an_engine_that_goes_away_is_looked_for_at_the_next_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.core.scheduler._LONG_REST_S", 0.01)
    monkeypatch.setattr("inference.core.engine_holder.RETRY_UNREACHABLE_AFTER_S", 0.0)
    first, second = SteppedEngine(), SteppedEngine()
    loads: list[SteppedEngine | None] = [first, None, second]

    def load(_: ReportProgress) -> SteppedEngine:
        engine = loads.pop(0)
        if engine is None:
            raise EngineUnavailable("nobody answers")
        return engine

    scheduler = start(load)
    lost = ask(scheduler, "1")
    first.wait_begun()
    first.is_gone = True  # while its last answer is on its way
    first.steps.release(1)
    assert lost.text() == "1"
    assert first.saved.acquire(timeout=PATIENCE_S)  # at rest
    scheduler.release(session_key("a.py"))
    assert isinstance(ask(scheduler, "2").wait(), EngineUnavailable)
    second.steps.release(1)
    assert ask(scheduler, "3").text() == "3"
    assert not loads
    scheduler.close()


def test_a_failure_at_rest_does_not_stop_the_thread(
    scheduler: Scheduler, engine: SteppedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.core.scheduler._LONG_REST_S", 0.01)
    broken = threading.Event()

    def break_down() -> StoreStats:
        if engine.saved.acquire(blocking=False):  # it rests
            broken.set()
            raise AssertionError("broken")
        return StoreStats(tiers=(), evicted_tokens=0)

    monkeypatch.setattr(engine, "stats", break_down)
    engine.steps.release(2)
    assert ask(scheduler, "1").text() == "1"
    assert broken.wait(PATIENCE_S)
    assert ask(scheduler, "2").text() == "2"


def test_failing_listener_does_not_stop_the_thread(scheduler: Scheduler, engine: SteppedEngine) -> None:
    def fail(request: Request) -> None:
        raise RuntimeError("nobody home")

    engine.steps.release(2)
    scheduler.submit(Request(CompletionRequest("a.py", Prompt("1", ""), 8), changed=fail))
    assert ask(scheduler, "2", "b.py").text() == "2"


def test_forgotten_session_is_not_made_resident_again(scheduler: Scheduler, engine: SteppedEngine) -> None:
    running = ask(scheduler, "1", "a.py")
    engine.wait_begun()
    waiting = ask(scheduler, "2", "b.py")
    scheduler.forget(session_key("b.py"))
    assert isinstance(waiting.answer, Cancelled)
    scheduler.forget(session_key("a.py"))
    engine.steps.release(2)
    assert isinstance(running.wait(), Cancelled)
    ask(scheduler, "3", "c.py").wait()
    assert engine.started == ["1", "3"]
    assert sorted(engine.forgotten) == ["a.py", "b.py"]


def test_a_flood_of_chores_holds_up_no_forward(
    scheduler: Scheduler, engine: SteppedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forget(document: str) -> None:
        time.sleep(0.002)
        engine.forgotten.append(document)

    monkeypatch.setattr(engine, "forget", forget)
    engine.forwards_needed = 20
    typing = ask(scheduler, "1", "b.py", client="typing")
    engine.wait_begun()
    for number in range(500):
        scheduler.forget(session_key(f"{number}.py"), "flooding")
    engine.steps.release(20)
    assert typing.text() == "1"
    assert 1 <= len(engine.forgotten) < 100
    assert scheduler.close()
    assert len(engine.forgotten) == 500


def test_those_who_ask_to_free_while_it_waits_are_served_together(
    scheduler: Scheduler, engine: SteppedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    freed, told = list[bool](), threading.Semaphore(0)
    monkeypatch.setattr(engine, "free", lambda *, disk: freed.append(disk), raising=False)
    engine.steps.release(1)
    ask(scheduler, "0").wait()
    ask(scheduler, "1")
    engine.wait_begun(2)
    for disk in (False, True, False, False):
        scheduler.free(lambda _: told.release(), disk=disk)
    engine.steps.release(1)
    for _ in range(4):
        assert told.acquire(timeout=PATIENCE_S)
    assert freed == [False, True]


def test_the_memory_of_the_process_is_measured_once_for_many_who_ask(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = list[int]()
    monkeypatch.setattr("inference.core.scheduler._resident_bytes", lambda: measured.append(1) or 7)
    monkeypatch.setattr("inference.core.scheduler.MEASURED_FOR_S", 1000.0)
    assert {scheduler.memory().process_bytes for _ in range(1000)} == {7}
    assert len(measured) == 1


def test_who_hears_that_the_model_is_unloaded_reads_the_memory_that_is_left(
    engine: SteppedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.core.scheduler._resident_bytes", lambda: 3 if engine.closed else 7)
    monkeypatch.setattr("inference.core.scheduler.MEASURED_FOR_S", 1000.0)
    left, heard = list[int](), threading.Event()

    def on_status(status: CoreStatus) -> None:
        if status.state == "unloaded":
            left.append(scheduler.memory().process_bytes)
            heard.set()

    scheduler = start(lambda _: engine, on_status)
    engine.steps.release(1)
    ask(scheduler, "1").wait()
    assert scheduler.memory().process_bytes == 7
    scheduler.unload()
    assert heard.wait(PATIENCE_S)
    assert left == [3]
    scheduler.close()


def test_closed_documents_are_released_in_the_model_thread(scheduler: Scheduler, engine: SteppedEngine) -> None:
    engine.steps.release(2)
    ask(scheduler, "1").wait()
    scheduler.release(session_key("a.py"))
    ask(scheduler, "2").wait()
    assert engine.released == [session_key("a.py")]


def test_at_rest_what_is_resident_is_saved(scheduler: Scheduler, engine: SteppedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference.core.scheduler._LONG_REST_S", 0.01)
    engine.steps.release(1)
    ask(scheduler, "1").wait()
    assert engine.saved.acquire(timeout=PATIENCE_S)


def test_without_a_rest_what_is_resident_is_saved_between_forwards(
    engine: SteppedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.core.scheduler.AT_LATEST_S", 0.0)
    monkeypatch.setattr("inference.core.scheduler.APART_S", 0.0)
    scheduler = start(lambda progress: engine)
    engine.forwards_needed = 3
    listener = ask(scheduler, "1")
    engine.steps.release(2)
    assert engine.saved.acquire(timeout=PATIENCE_S)
    assert listener.answer is None
    engine.steps.release(1)
    listener.wait()
    scheduler.close()


def test_saving_that_fails_does_not_stop_the_thread(
    scheduler: Scheduler, engine: SteppedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.core.scheduler._LONG_REST_S", 0.01)

    def fail(*_: object, **_options: object) -> bool:
        engine.saved.release()
        raise RuntimeError("boom")

    monkeypatch.setattr(engine, "save", fail)
    engine.steps.release(2)
    ask(scheduler, "1").wait()
    assert engine.saved.acquire(timeout=PATIENCE_S)
    assert ask(scheduler, "2").text() == "2"


def test_closing_forgets_what_is_to_be_forgotten_and_saves_for_as_long_as_there_is_time(engine: SteppedEngine) -> None:
    scheduler = start(lambda progress: engine)
    running = ask(scheduler, "1", "a.py")
    engine.wait_begun()
    scheduler.forget(session_key("b.py"))
    engine.steps.release(1)
    assert scheduler.close(100.0)
    running.wait()
    assert engine.forgotten == ["b.py"]
    assert engine.closed_with is not None
    assert 0 < engine.closed_with < 100.0


def test_closing_says_whether_the_thread_has_ended(engine: SteppedEngine) -> None:
    scheduler = start(lambda progress: engine)
    ask(scheduler, "1", "a.py")
    engine.wait_begun()
    assert not scheduler.close(0.01), "a forward is under way"
    engine.steps.release(1)
    assert scheduler.close(PATIENCE_S)


def test_closing_answers_everybody(engine: SteppedEngine) -> None:
    scheduler = start(lambda progress: engine)
    running = ask(scheduler, "1", "a.py")
    engine.wait_begun()
    waiting = ask(scheduler, "2", "b.py", prefetch=True)
    engine.steps.release(1)
    scheduler.close()
    assert isinstance(waiting.wait(), Cancelled)
    assert running.told.is_set()
    assert engine.closed
    with pytest.raises(Cancelled, match="shutting down"):
        ask(scheduler, "3")


def test_model_is_loaded_on_first_need_and_unloaded_when_idle(engine: SteppedEngine) -> None:
    seen: list[CoreStatus] = []
    unloaded = threading.Event()

    def on_status(status: CoreStatus) -> None:
        seen.append(status)
        if status.state == "unloaded":
            unloaded.set()

    def load(progress: ReportProgress) -> SteppedEngine:
        progress("reading the weights", 0.5)
        return engine

    scheduler = start(load, on_status, unload_after_s=0.05)
    assert scheduler.status.state == "unloaded"
    assert not seen
    engine.steps.release(1)
    assert ask(scheduler, "1").text() == "1"
    assert unloaded.wait(PATIENCE_S)
    assert [status.state for status in seen] == ["loading", "ready", "unloaded"]
    assert (seen[0].detail, seen[0].progress) == ("reading the weights", 0.5)
    assert (seen[1].device, seen[1].context_tokens, seen[1].chars_per_token) == ("none", 128, 3.0)
    engine.steps.release(1)
    assert ask(scheduler, "2").text() == "2"
    scheduler.close()


@pytest.mark.parametrize(("error", "message"), [(BadModel("no such model"), "no such"), (OSError("disk"), "disk")])
def test_failure_to_load_is_reported_and_not_repeated_at_every_keystroke(error: Exception, message: str) -> None:
    attempts = []

    def load(progress: ReportProgress) -> SteppedEngine:
        attempts.append(1)
        raise error

    scheduler = start(load)
    for text in ("1", "2"):
        answer = ask(scheduler, text).wait()
        assert isinstance(answer, BadModel)
        assert message in str(answer)
    assert len(attempts) == 1
    assert scheduler.status.state == "failed"
    assert message in scheduler.status.detail
    scheduler.close()
