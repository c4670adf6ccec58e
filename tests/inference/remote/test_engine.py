"""A keystroke's life through a server: prompt, healing, stop, limits, cost, cancellation, loss and reconnection."""

from __future__ import annotations

import threading
import time
from itertools import count, pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from inference.core.engine_holder import EngineHolder
from inference.core.scheduler import Scheduler
from inference.engine.request import Request
from inference.engine.sessions import session_key
from inference.loading.options import EngineOptions
from inference.remote.connecting import connect
from inference.remote.engine import UNREPORTED, RemoteEngine
from inference.remote.llama_server import COPY_TOKENS
from inference.remote.openai import CONSTRAINTS
from inference.remote.server import Piece
from inference.text.prompts import tokenize_prompt
from inference.text.token_ids import common_prefix_length, packed
from protocol.errors import BadInput, Busy, Cancelled, EngineUnavailable
from protocol.messages import ANONYMOUS, Alternative, Completion, CompletionRequest, Prompt, Sampling, StopRule, cache_outcome
from tests.inference.remote.conftest import Connect
from tests.inference.remote.fake_servers import FORBIDDEN, LOGPROB, PATIENCE_S, FakeServer, llama_server, openai_server, serving
from tests.inference.requests import begin
from tests.inference.serving import wait_until
from tests.inference.tiny_gguf import tokenizer_fields, write_file

PREFIX = "def first(value):\n    return value\n\n\n" * 16
SUFFIX = "\n\n\ndef last(value):\n    return value\n"
BLOCK = StopRule(indent=4)
REST = StopRule(indent=0)


def ask(increment: str = "", session: str = "me/a", **changes: object) -> CompletionRequest:
    request = CompletionRequest(session, Prompt(PREFIX, SUFFIX, increment), 16)
    return CompletionRequest(**{**{name: getattr(request, name) for name in request.__struct_fields__}, **changes})


@pytest.fixture(params=["llama", "openai"])
def engine(request: pytest.FixtureRequest) -> RemoteEngine:
    """Connected to either kind of server."""
    connect: Connect = request.getfixturevalue(f"connect_{request.param}")
    engine = connect()
    request.getfixturevalue("server").bodies.clear()
    return engine


def test_the_prompt_is_the_local_engines(engine: RemoteEngine, server: FakeServer) -> None:
    completion = engine.complete(ask("x = "))
    (body,) = server.bodies
    ours = tokenize_prompt(ask("x = ").prompt, engine.tokenizer, server.context, 16, engine._healer)
    assert body["prompt"] == ours.token_ids.tolist()
    assert completion.usage.prompt_tokens == len(body["prompt"])


def test_a_short_prompt_answers_until_the_whole_one_is_resident(engine: RemoteEngine) -> None:
    whole = Prompt(PREFIX * 8, SUFFIX, "x = ")
    first = engine.complete(ask(prompt=whole, max_prefill_ms=1))
    assert first.is_short
    second = engine.complete(ask(prompt=replace(whole, increment="x = 1"), max_prefill_ms=1))
    assert second.is_short
    assert cache_outcome(second.usage, 1) == "hit"
    prepared = engine.complete(ask(prompt=replace(whole, increment="x = 1"), max_tokens=0))
    assert prepared.usage.prompt_tokens > first.usage.prompt_tokens
    for increment in ("x = 12", "x = 123"):
        later = engine.complete(ask(prompt=replace(whole, increment=increment), max_prefill_ms=1))
        assert (later.is_short, cache_outcome(later.usage, 1)) == (False, "hit")
        cancelled = begin(engine, ask(prompt=replace(whole, increment=increment), max_prefill_ms=1))
        cancelled.cancelled = True
        engine.step()


def test_a_server_with_one_slot_gets_no_short_prompts(connect_llama: Connect, server: FakeServer) -> None:
    server.slots = 1
    assert not connect_llama().complete(ask(prompt=Prompt(PREFIX * 8, SUFFIX), max_prefill_ms=1)).is_short


VALUE = Prompt(PREFIX, "beta)\n")


@pytest.mark.parametrize(
    ("script", "changes", "ended"),
    [
        ("alpha beta\n    gamma", {}, ("alpha beta", "stop")),
        ("\n    alpha\n", {"increment": "\n    "}, ("alpha", "stop")),  # typed newlines do not end the line
        ("alpha\nend", {"stop": REST}, ("alpha\nend", "eos")),
        ("alpha beta\n    gamma", {"stop": REST, "stop_texts": (" gam", "never")}, ("alpha beta\n   ", "stop")),
        ("alpha beta", {"increment": "al", "stop": REST, "stop_texts": ("lp",)}, ("pha beta", "eos")),  # in new text
        ("alpha beta", {"increment": "al", "stop": REST, "stop_texts": ("a b",)}, ("ph", "stop")),
        ("alpha, beta)\nmore", {"stop": REST, "prompt": VALUE}, ("alpha, ", "stop")),  # goes on as the suffix does
        ("alpha, beta)", {"stop": REST, "prompt": VALUE}, ("alpha, ", "stop")),
        ("beta) + 1\n", {"stop": REST, "prompt": VALUE}, ("beta) + 1\n", "eos")),
    ],
)
def test_a_text_ends(
    engine: RemoteEngine, server: FakeServer, script: str, changes: dict[str, object], ended: tuple[str, str]
) -> None:
    server.script = script
    completion = engine.complete(ask(**{"max_tokens": 100, **changes}))  # type: ignore[arg-type]
    assert (completion.text, completion.finish_reason) == ended
    assert completion.mean_logprob == LOGPROB


def test_what_was_typed_is_forced_and_is_not_part_of_the_text(engine: RemoteEngine, server: FakeServer) -> None:
    assert engine.complete(ask("al")).text == "pha beta"
    assert engine.complete(ask("other")).text == FORBIDDEN
    server.script = " beta"
    assert engine.complete(ask("alpha b")).text == "eta"  # the word before is stable, and part of the prompt


def test_a_block_ends_by_the_rule_and_the_request_is_closed(engine: RemoteEngine, server: FakeServer) -> None:
    server.script = "alpha\n    beta\nend of the block\n" + "never sent\n" * 20
    server.hold_after = 20
    completion = engine.complete(ask(stop=BLOCK, max_tokens=100))
    assert (completion.text, completion.finish_reason) == ("alpha\n    beta", "stop")
    assert server.disconnects.acquire(timeout=PATIENCE_S)


def test_the_limit_counts_new_tokens_only(engine: RemoteEngine) -> None:
    whole = engine.complete(ask(stop=REST)).text
    for limit in (1, 2, 3):
        completion = engine.complete(ask(stop=REST, max_tokens=limit))
        assert completion.finish_reason == "length"
        assert completion.usage.generated_tokens == limit
        assert whole.startswith(completion.text)
        typed = engine.complete(ask("al", stop=REST, max_tokens=limit))
        assert typed.usage.generated_tokens == limit


def test_a_block_of_vllms_counts_as_a_hit(connect_openai: Connect, server: FakeServer) -> None:
    server.block_tokens = 16
    engine = connect_openai()
    outcomes = [cache_outcome(engine.complete(ask("value = first(value)"[:typed])).usage, 1) for typed in range(20)]
    assert outcomes[0] == "miss"
    assert set(outcomes[1:]) == {"hit"}


def test_cached_tokens_are_reported(engine: RemoteEngine, server: FakeServer) -> None:
    first = engine.complete(ask("x")).usage
    assert first.recomputed_tokens >= first.prompt_tokens
    again = engine.complete(ask("xy")).usage
    typed_and_block = 3 if server.bodies[-1].get("id_slot") is not None else 16 + 3
    assert again.recomputed_tokens <= typed_and_block
    cold = engine.complete(ask("xy", reuse=False)).usage
    assert cold.recomputed_tokens >= cold.prompt_tokens
    assert engine.notice == ""


def test_a_prefetch_makes_the_prompt_resident(engine: RemoteEngine, server: FakeServer) -> None:
    completion = engine.complete(ask(max_tokens=0))
    assert (completion.text, completion.usage.generated_tokens) == ("", 0)
    assert server.bodies[-1].get("n_predict", server.bodies[-1].get("max_tokens")) in (0, 1)
    assert engine.complete(ask()).usage.recomputed_tokens <= 16


def test_a_copy_of_the_states_stands_where_the_next_anchor_leaves_a_new_prefix(
    connect_llama: Connect, server: FakeServer, tokenizer_folder: Path, tmp_path: Path
) -> None:
    fields = tokenizer_fields(tokenizer_folder / "tokenizer.json")
    sizes = {"lfm2.block_count": 2, "lfm2.embedding_length": 8, "lfm2.shortconv.l_cache": 3}
    server.model = str(write_file(tmp_path / "lfm2.gguf", {"general.architecture": "lfm2", **fields, **sizes}, {}))
    engine = connect_llama()
    first = engine.complete(ask(max_tokens=0)).usage
    assert first.recomputed_tokens == first.prompt_tokens
    assert engine.complete(ask("x", max_tokens=0)).usage.recomputed_tokens <= 2
    mark, whole, longer = (body["prompt"] for body in server.bodies)
    later = tokenize_prompt(Prompt(PREFIX + "class A:\n    pass\n", SUFFIX), engine.tokenizer, server.context, 16)
    left = common_prefix_length(packed(whole), later.token_ids)
    assert left - COPY_TOKENS < len(mark) - COPY_TOKENS <= left
    assert whole[: len(mark)] == mark
    assert longer[: len(whole)] == whole
    assert [body["n_predict"] for body in server.bodies] == [0, 0, 0]
    server.bodies.clear()
    first = engine.complete(ask("y", "me/b")).usage  # no prefetch
    assert first.recomputed_tokens >= first.prompt_tokens
    assert server.bodies[0]["prompt"] == mark
    engine.complete(ask("yz", "me/b"))
    engine.complete(ask("yz", "me/b", reuse=False))
    assert [body["n_predict"] > 0 for body in server.bodies] == [False, True, True, True]


def test_alternatives_leave_the_text_at_a_token(engine: RemoteEngine, server: FakeServer) -> None:
    """The server names the same others in every place, so that the best comes first in the first two places."""
    firsts = [(engine.tokenizer.bytes_of(id_) or b"").decode() for id_ in server.top()]
    completion = engine.complete(ask(alternatives=2))
    assert completion.text == "alpha beta"
    kept = (engine.tokenizer.bytes_of(engine.tokenizer.encode("alpha beta")[0]) or b"").decode()
    assert completion.alternatives == (
        Alternative(firsts[0] + "alpha beta", "stop"),
        Alternative(kept + firsts[0] + "alpha beta", "stop"),
    )
    assert completion.usage.generated_tokens > 2 * 3


def test_alternatives_take_few_places_at_once(engine: RemoteEngine, server: FakeServer) -> None:
    """However many are wanted: one request must not take the whole server."""
    server.seconds_per_token = 0.05
    assert len(engine.complete(ask(alternatives=8)).alternatives) == 8
    assert 1 < server.most_at_work <= 4


def test_an_alternative_that_the_server_fails_is_left_out(engine: RemoteEngine, server: FakeServer) -> None:
    server.statuses = [200, 429]  # of the text itself, and of one alternative
    completion = engine.complete(ask(alternatives=2))
    assert (completion.text, len(completion.alternatives)) == ("alpha beta", 1)


def test_bad_requests_are_refused_before_they_are_sent(engine: RemoteEngine, server: FakeServer) -> None:
    with pytest.raises(BadInput, match="cannot be sampled"):
        engine.complete(ask(sampling=Sampling(1.0), alternatives=1))
    assert server.bodies == []


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, BadInput), (401, EngineUnavailable), (404, EngineUnavailable), (429, Busy), (500, EngineUnavailable)],
)
def test_refusals_name_the_server_and_the_next_request_is_served(
    engine: RemoteEngine, server: FakeServer, status: int, error: type[Exception]
) -> None:
    server.statuses = [status]
    with pytest.raises(error, match=r"at http://127.0.0.1:\d+"):
        engine.complete(ask())
    assert engine.complete(ask()).text == "alpha beta"
    assert engine.is_gone == (error is EngineUnavailable)


def test_a_broken_stream_is_an_error(engine: RemoteEngine, server: FakeServer) -> None:
    server.break_after = 1
    with pytest.raises(EngineUnavailable):
        engine.complete(ask())
    server.break_after = None
    assert engine.complete(ask()).text == "alpha beta"


def test_a_cancelled_request_is_closed_at_once(engine: RemoteEngine, server: FakeServer) -> None:
    server.hold_after = 1
    run = begin(engine, ask())
    assert server.streaming.acquire(timeout=PATIENCE_S)
    run.cancelled = True
    engine.wake()
    assert list(engine.step()) == [run]
    assert run.completion().finish_reason == "cancelled"
    assert server.disconnects.acquire(timeout=PATIENCE_S)
    server.hold_after = None
    assert engine.complete(ask()).text == "alpha beta"


def test_a_cancelled_request_counts_what_it_has_cost(engine: RemoteEngine, server: FakeServer) -> None:
    server.script, server.hold_after = "alpha beta gamma", 3
    run = begin(engine, ask(stop=REST))
    wait_until(lambda: engine._at_work[0].generated >= 3)
    run.cancelled = True
    engine.wake()
    engine.step()
    usage = run.completion().usage
    assert usage.generated_tokens == 3
    assert usage.recomputed_tokens >= usage.prompt_tokens > 0


def test_a_request_that_gave_way_begins_anew_whatever_its_first_run_still_says(engine: RemoteEngine, server: FakeServer) -> None:
    server.hold_after = 1
    reported: list[str] = []
    request = begin(engine, ask(), changed=lambda each: reported.append(each.text), grows=True)
    assert server.streaming.acquire(timeout=PATIENCE_S)
    (first,) = engine._at_work
    request.gives_way = True
    assert engine.drop_unwanted() == [request]
    request.gives_way, request.outcome = False, None
    before = len(reported)
    first.report_text("stale")
    first.note(Piece("", (), prefilled=(7, 9)))
    assert (len(reported), request.prefilled) == (before, 0)
    server.hold_after = None
    engine.begin(request)  # before the engine has seen that the first run's future was cancelled
    while not request.has_ended:
        engine.step()
    assert request.completion().text == "alpha beta"


def test_waking_ends_a_step_without_an_answer(engine: RemoteEngine, server: FakeServer) -> None:
    server.hold_after = 1
    run = begin(engine, ask())
    engine.wake()
    assert list(engine.step()) == []
    server.go_on.set()
    while not run.has_ended:
        engine.step()
    assert run.completion().text == "alpha beta"


def test_what_the_server_has_dropped_is_noticed_and_told(engine: RemoteEngine, server: FakeServer) -> None:
    engine.complete(ask())
    server.resident.clear()
    engine.complete(ask("x"))
    assert "dropped" in engine.notice
    assert engine.stats().evicted_tokens > 64


@pytest.mark.parametrize(("status", "is_gone"), [(429, False), (401, True)])
def test_a_check_that_fails_fails_no_request(connect_openai: Connect, server: FakeServer, status: int, is_gone: bool) -> None:
    """A busy server is not taken for another; behind a router the check may have met a dead one, while others go on."""
    engine = connect_openai()
    engine.complete(ask())
    server.resident.clear()
    server.statuses = [200, status]  # an answer that had nothing cached, then what the core asks about it
    engine.complete(ask("x"))
    wait_until(lambda: not server.statuses and engine.is_gone >= is_gone)
    assert engine.complete(ask("xy")).text
    assert engine.is_gone == is_gone


def test_sessions_keep_their_slots(connect_llama: Connect, server: FakeServer) -> None:
    engine = connect_llama()
    for session in ("me/a", "me/b", "me/a", "me/b"):
        engine.complete(ask(session=session))
    assert [body["id_slot"] for body in server.bodies] == [0, 1, 0, 1]
    engine.complete(ask(session="me/c"))  # takes the slot of `a`, which was used least recently
    assert server.bodies[-1]["id_slot"] == 0
    engine.release(session_key("me/c"))
    engine.complete(ask(session="me/d"))
    assert server.bodies[-1]["id_slot"] == 0
    assert engine.notice == ""  # an eviction that the core has chosen is no loss


def test_anonymous_prompts_find_the_slot_that_shares_most(connect_llama: Connect, server: FakeServer) -> None:
    engine = connect_llama()
    for prefix in (PREFIX, "x" + PREFIX, PREFIX + "y = 1\n", "x" + PREFIX + "y = 1\n"):
        engine.complete(ask(session=ANONYMOUS, prompt=Prompt(prefix, "")))
    assert [body["id_slot"] for body in server.bodies] == [0, 1, 0, 1]


def test_an_excluded_document_is_erased_for_every_client(connect_llama: Connect, server: FakeServer) -> None:
    engine = connect_llama()
    engine.complete(ask(session="me/a"))
    engine.forget("a")
    engine.complete(ask(session="me/b"))
    assert server.erased == [0]
    server.can_erase = False
    engine.forget("b")
    engine.complete(ask(session="me/c"))
    assert server.bodies[-2]["prompt"] == [min(engine.tokenizer.markers.end)]  # overwrites the slot
    assert server.bodies[-2]["n_predict"] == 0


def test_a_session_keeps_its_header_and_documents_are_not_named(connect_openai: Connect, server: FakeServer) -> None:
    engine = connect_openai()
    for session in ("me/secret.py", "me/secret.py", "me/b"):
        engine.complete(ask(session=session))
    first, second, other = [headers["x-session-id"] for headers in server.headers[-3:]]
    assert first == second != other
    assert "secret" not in first


def test_anonymous_prompts_are_named_by_their_beginning(connect_openai: Connect, server: FakeServer) -> None:
    engine = connect_openai()
    for beginning, typed in (("one", "x"), ("one", "xy"), ("two", "x")):
        engine.complete(ask(session=ANONYMOUS, prompt=Prompt(f"# {beginning}\n{PREFIX}", "", typed)))
    first, second, other = [headers["x-session-id"] for headers in server.headers[-3:]]
    assert first == second != other


def test_cached_tokens_are_estimated_where_the_server_hides_them(connect_openai: Connect, server: FakeServer) -> None:
    server.reports_cached = False
    engine = connect_openai()
    engine.complete(ask())
    usage = engine.complete(ask("x")).usage
    assert 0 < usage.recomputed_tokens <= 16 + 3
    assert engine.notice == UNREPORTED


@pytest.mark.parametrize("obeyed", ["structured_outputs", "guided_regex", "regex", "grammar"])
def test_a_constraint_that_the_server_obeys_heals(connect_openai: Connect, server: FakeServer, obeyed: str) -> None:
    server.obeys = (obeyed,)
    engine = connect_openai()
    server.script = "((a) [x]*\n"
    assert engine.complete(ask("((")).text == "a) [x]*"
    assert obeyed in server.bodies[-1]


def test_without_a_constraint_healing_is_off_and_told(connect_openai: Connect, server: FakeServer) -> None:
    server.obeys = ()
    engine = connect_openai()
    assert "healing is off" in engine.notice
    assert engine.complete(ask("al")).text == "alpha beta"


def test_a_server_that_refuses_token_ids_is_refused_with_its_reason(connect_openai: Connect, server: FakeServer) -> None:
    server.statuses = [422] * (len(CONSTRAINTS) + 1)
    with pytest.raises(BadInput, match=r"refuses the request \(422\): status 422"):
        connect_openai()
    server.statuses = [422] * len(CONSTRAINTS)
    assert "healing is off" in connect_openai().notice


# -- with the scheduler ------------------------------------------------------------------------------------------------


class Answers:
    """Collects answers by the names of requests."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.found: dict[str, object] = {}
        self._arrived = threading.Condition()

    def submit(self, name: str, spec: CompletionRequest) -> None:
        self.scheduler.submit(Request(spec, changed=lambda request: self._take(name, request)))

    def wait(self, *names: str) -> list[object]:
        with self._arrived:
            assert self._arrived.wait_for(lambda: all(name in self.found for name in names), PATIENCE_S)
            return [self.found[name] for name in names]

    def _take(self, name: str, request: Request) -> None:
        if request.outcome is None:
            return
        with self._arrived:
            assert name not in self.found
            self.found[name] = request.outcome
            self._arrived.notify_all()


@pytest.fixture
def answers(connect_llama: Connect, quick_core: None) -> pytest.Generator[Answers, None, None]:
    attempts = count(1)
    engine = connect_llama()

    def load(_progress: object) -> RemoteEngine:
        return engine if next(attempts) == 1 else connect_llama()

    statuses: list[str] = []
    holder = EngineHolder("remote", load, lambda status: statuses.append(status.state))
    scheduler = Scheduler(holder)
    yield Answers(scheduler)
    assert scheduler.close(PATIENCE_S)


def test_a_newer_request_supersedes_one_at_the_server(answers: Answers, server: FakeServer) -> None:
    server.hold_after = 1
    answers.submit("old", ask("a"))
    assert server.streaming.acquire(timeout=PATIENCE_S)
    server.hold_after = None
    answers.submit("new", ask("al"))
    old, new = answers.wait("old", "new")
    assert isinstance(old, Cancelled)
    assert isinstance(new, Completion)
    assert new.text.endswith("pha beta")  # whole if `al` was a token that the old request had chosen already
    assert server.disconnects.acquire(timeout=PATIENCE_S)


def test_a_submitted_request_does_not_wait_for_one_that_is_at_work(answers: Answers, server: FakeServer) -> None:
    server.hold_after = 1
    answers.submit("held", ask(session="me/a"))
    assert server.streaming.acquire(timeout=PATIENCE_S)
    server.hold_after = None
    answers.submit("other", ask(session="me/b"))
    (other,) = answers.wait("other")
    assert isinstance(other, Completion)
    assert "held" not in answers.found
    server.go_on.set()
    answers.wait("held")


@pytest.mark.parametrize("kind", ["llama-server", "openai"])
def test_a_server_that_dies_and_comes_back_is_connected_to_anew(kind: str, server: FakeServer, quick_core: None) -> None:
    make = llama_server if kind == "llama-server" else openai_server
    with serving(make(server)) as url:
        options = EngineOptions(engine=f"{kind}={url}", healing="on")
        answers = Answers(Scheduler(EngineHolder("remote", lambda _: connect(options), lambda _: None)))
        answers.submit("first", ask())
        assert isinstance(answers.wait("first")[0], Completion)
        server.hold_after = 1
        answers.submit("cut", ask("a"))
        assert server.streaming.acquire(timeout=PATIENCE_S)
    (cut,) = answers.wait("cut")
    assert isinstance(cut, EngineUnavailable)
    answers.submit("refused", ask("al"))  # for which the core connects anew
    (refused,) = answers.wait("refused")
    assert isinstance(refused, EngineUnavailable)
    assert url in str(refused)
    assert answers.scheduler.status.state == "failed"
    server.hold_after = None
    with serving(make(server), urlsplit(url).port or 0):
        deadline, names = time.monotonic() + PATIENCE_S, count()
        answer: object = None
        while not isinstance(answer, Completion):
            assert time.monotonic() < deadline
            name = str(next(names))
            answers.submit(name, ask("al"))
            (answer,) = answers.wait(name)
        assert answer.text == "pha beta"
        assert answers.scheduler.status.state == "ready"
        assert answers.scheduler.close(PATIENCE_S)


def test_the_status_tells_what_the_server_has_dropped(answers: Answers, server: FakeServer) -> None:
    answers.submit("first", ask())
    answers.wait("first")
    server.resident.clear()
    answers.submit("second", ask("x"))
    answers.wait("second")
    answers.submit("third", ask("xy"))
    answers.wait("third")
    assert "dropped" in answers.scheduler.status.detail


# -- what HTTP clients ask for -----------------------------------------------------------------------------------------


def test_the_models_own_penalties_do_not_count(connect_openai: Connect, server: FakeServer) -> None:
    connect_openai().complete(ask(sampling=Sampling(0.7)))
    sent = server.bodies[-1]
    assert (sent["repetition_penalty"], sent["min_p"], sent["top_k"]) == (1.0, 0.0, -1)
    assert sent["presence_penalty"] == sent["frequency_penalty"] == 0.0


def test_sampling_is_passed_on(engine: RemoteEngine, server: FakeServer) -> None:
    engine.complete(ask(sampling=Sampling(0.7, top_p=0.9, top_k=5, seed=3)))
    sent = server.bodies[-1]
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["seed"]) == (0.7, 0.9, 5, 3)
    assert sent.get("samplers", []) in ([], ["top_k", "temperature", "top_p"])


def test_log_probabilities_are_reported_per_token(engine: RemoteEngine) -> None:
    completion = engine.complete(ask(token_logprobs=True))
    assert "".join(token.text for token in completion.tokens) == completion.text
    assert {token.logprob for token in completion.tokens} == {LOGPROB}
    assert engine.complete(ask()).tokens == ()


def test_a_text_is_told_while_it_grows_without_what_a_stop_may_take_away(engine: RemoteEngine, server: FakeServer) -> None:
    server.script = "alpha beta\n    gamma delta"
    told: list[str] = []
    spec = ask(stop=BLOCK, stop_texts=("gamma d",))
    run = begin(engine, spec, changed=lambda request: told.append(request.text), grows=True)
    while not run.has_ended:
        engine.step()
    assert run.completion().text == "alpha beta\n    "
    assert len(set(told)) > 3
    assert all(later.startswith(earlier) for earlier, later in pairwise([*told, run.completion().text]))


@pytest.mark.parametrize(("beginning", "limits"), [("", {"min_probability": 0.2}), ("a\n", {"max_decode_ms": 1})])
def test_an_improbable_text_ends_and_a_late_one_behind_its_first_line(
    engine: RemoteEngine, server: FakeServer, beginning: str, limits: dict[str, object]
) -> None:
    server.script = beginning + "alpha beta gamma " * 200
    completion = engine.complete(ask(stop=REST, max_tokens=190, **limits))
    assert completion.finish_reason == "length"
    assert completion.text.startswith(beginning or "a")
    assert completion.usage.generated_tokens < 190
