"""The dashboard of a real core: who may open it, what it shows, and that it costs nothing unwatched."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from inference.core.pages import CODE_S, MOST_UNREAD, STATIC_PATH, Feed, PageKeys, page_routes
from inference.engine.request import Request
from inference.engine.sessions import session_key
from inference.loading.options import EngineOptions
from protocol.messages import CompletionRequest, CoreStatus, Prompt
from protocol.settings import TINY_MODEL
from tests.inference.serving import BEARER, Served, serving

OPTIONS = EngineOptions(TINY_MODEL, context_tokens=512, threads=1, slots=2)


@pytest.fixture(scope="module")
def core() -> Iterator[Served]:
    with serving(OPTIONS) as served:
        yield served


@contextmanager
def asking(core: Served, method: str, path: str, headers: dict[str, str]) -> Iterator[HTTPResponse]:
    connection = HTTPConnection(core.address, timeout=60)
    connection.request(method, path, headers=headers)
    try:
        yield connection.getresponse()
    finally:
        connection.close()


def ask(core: Served, method: str, path: str, headers: dict[str, str]) -> tuple[int, Any]:
    with asking(core, method, path, headers) as response:
        return response.status, json.loads(response.read())


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def key(core: Served) -> str:
    status, link = ask(core, "POST", "/dashboard/link", BEARER)
    assert status == 200
    assert ask(core, "GET", "/pages/key", bearer(link["code"])) == (200, {"key": link["key"]})
    assert ask(core, "GET", "/pages/key", bearer(link["code"]))[0] == 401
    return str(link["key"])


def complete(core: Served, increment: str, session: str = "c1/file:///a/b.py") -> None:
    done = Event()
    prompt = Prompt("import os\n\n\n", "\n    return names\n", increment)
    spec = CompletionRequest(session, prompt, 4)
    core.scheduler.submit(Request(spec, "client", changed=lambda request: done.set() if request.has_ended else None))
    assert done.wait(60)


class Events:
    """What the page receives, event by event."""

    def __init__(self, response: HTTPResponse) -> None:
        assert response.status == 200
        self._response = response

    def __call__(self) -> dict[str, Any]:
        line, blank = self._response.readline(), self._response.readline()
        assert (line[:6], blank) == (b"data: ", b"\n")
        event: dict[str, Any] = json.loads(line[6:])
        return event


def test_the_key_opens_the_events_and_nothing_else(core: Served, key: str) -> None:
    for path in ("/health", "/metrics", "/v1/models", "/dashboard/link", "/props"):
        assert ask(core, "GET", path, bearer(key))[0] == 401
    for headers in ({}, bearer("wrong"), {"Authorization": key}):
        assert ask(core, "GET", "/dashboard/events", headers)[0] == 401
        assert ask(core, "POST", "/dashboard/link", headers)[0] == 401
        assert ask(core, "GET", "/pages/key", headers)[0] == 401
    for foreign in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
        assert ask(core, "GET", "/dashboard/events", bearer(key) | foreign)[0] in (403, 421)
    with asking(core, "GET", "/dashboard", {}) as page:
        assert page.status in (200, 503)  # 503 where the pages are not built


def test_a_listener_sees_what_is_resident_and_what_each_request_computes(core: Served, key: str) -> None:
    complete(core, "def names(folder):\n    names = []\n    for name in ")
    with asking(core, "GET", "/dashboard/events", bearer(key)) as response:
        event = Events(response)
        assert (event()["event"], core.clients.count) == ("status", 0)
        snapshot = event()
        assert snapshot["answered"] is None
        (resident,) = [one for one in snapshot["residents"] if one["session"] == "c1/file:///a/b.py"]
        assert resident["workspace"] > 20
        for typed in ("o", "os", "os.", "os.listdir("):
            increment = f"def names(folder):\n    names = []\n    for name in {typed}"
            complete(core, increment)
            answered = event()["answered"]
            assert (answered["session"], answered["is_prefetch"]) == ("c1/file:///a/b.py", False)
            assert answered["cache_outcome"] == "hit"
            parts = "".join(span["text"] for span in answered["prompt"])
            assert parts == f"import os\n\n\n\n    return names\n{increment}"
            computed = [span for span in answered["prompt"] if not span["resident"]]
            assert 0 < sum(span["tokens"] for span in computed) <= answered["usage"]["recomputed_tokens"]
            assert {span["part"] for span in computed} == {"increment"}
            assert parts.endswith("".join(span["text"] for span in computed))
        assert any("os.listdir(" in prompt.increment for prompt in core.feed.prompts.values())
        of_before = Request(CompletionRequest("c1/file:///a/b.py", Prompt("x", "", "y"), 4), "client")
        core.scheduler.forget(session_key("c1/file:///a/b.py"))
        assert core.feed._inserted(of_before) == ""
        assert not core.feed.prompts


def test_without_a_listener_no_event_is_built(core: Served, key: str) -> None:
    with asking(core, "GET", "/dashboard/events", bearer(key)) as response:
        event = Events(response)
        event(), event()
    requests = 0
    while core.feed.wanted:  # until the server has seen that the page is gone
        complete(core, f"x = {requests}")
        requests += 1
        assert requests < 200
    core.scheduler.look()
    complete(core, "x")  # the model thread may still have been at an event when the page went
    built = core.feed.built
    for number in range(3):
        complete(core, f"y = {number}")
    core.scheduler.look()
    complete(core, "z")
    assert core.feed.built == built


async def test_a_stream_ends_with_the_core() -> None:
    feed, status = Feed(), CoreStatus("ready", "tiny")
    listening = feed.listen(status, pytest.fail)
    await anext(listening)
    for _ in range(3):
        feed.report(status)
    feed.close()
    assert len([one async for one in listening]) == 3
    assert not feed.wanted


@pytest.mark.parametrize(("told", "drops"), [(MOST_UNREAD, 0), (MOST_UNREAD + 1, 1)])
async def test_a_listener_that_does_not_read_is_disconnected(told: int, drops: int) -> None:
    feed, status, dropped = Feed(), CoreStatus("ready", "tiny"), []
    listening = feed.listen(status, lambda: dropped.append(True))
    await anext(listening)
    for _ in range(told):
        feed.report(status)
    await asyncio.sleep(0)
    assert len(dropped) == drops
    await listening.aclose()
    assert not feed.wanted


def client(built: Path) -> TestClient:
    return TestClient(Starlette(routes=page_routes("dashboard", built)))


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / "static"
    folder.mkdir()
    (folder / "dashboard.html").write_text("<p>page")
    (folder / "dashboard.js").write_text("1")
    (tmp_path / "secret").write_text("secret")
    return folder


@pytest.mark.parametrize("path", ["/dashboard", f"{STATIC_PATH}/dashboard.js"])
def test_pages_may_load_nothing_from_elsewhere_and_run_no_inline_script(built: Path, path: str) -> None:
    answer = client(built).get(path)
    assert answer.status_code == 200
    policy = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
    assert policy.pop("default-src") == "'none'"
    assert set(policy.values()) == {"'self'", "'none'"}
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", ["../secret", "..%2fsecret", "%2e%2e/secret", "/etc/passwd", "none.js", ""])
def test_only_the_built_files_are_served(built: Path, path: str) -> None:
    assert client(built).get(f"{STATIC_PATH}/{path}").status_code == 404


def test_a_page_that_is_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    answer = client(tmp_path / "missing").get("/dashboard")
    assert answer.status_code == 503
    assert "make pages" in answer.text


def test_good_is_calm_and_costly_is_red() -> None:
    css = (Path(__file__).parents[3] / "web" / "src" / "page.css").read_text(encoding="utf-8")
    found = re.findall(r"--(hit|miss): light-dark\((#\w{6}), (#\w{6})\)", css)
    assert len(found) == 2
    for name, *colours in found:
        for colour in colours:
            red, green = int(colour[1:3], 16), int(colour[3:5], 16)
            assert (green > red) == (name == "hit"), (name, colour)


def test_a_code_is_exchanged_once_and_in_time_and_the_key_always() -> None:
    now = 0.0
    keys = PageKeys(lambda: now)
    code, late = keys.new_code(), keys.new_code()
    assert [keys.exchange(code), keys.exchange(code)] == [keys.key, None]
    assert [keys.exchange(keys.key), keys.exchange(keys.key)] == [keys.key, keys.key]
    now = CODE_S
    assert keys.exchange(late) is None
    assert not keys.admits(late)
    assert keys.exchange("") is None
    assert keys.exchange("\N{SNOWMAN}") is None
    assert keys.admits(keys.key)
