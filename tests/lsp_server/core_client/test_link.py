"""The connection that is kept up: it comes back, and knows when that is hopeless.

Whose token goes where, and which core ends the wait for one.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from lsp_server.core_client.client import Endpoint
from lsp_server.core_client.link import CoreLink, CoreTarget, LinkStatus, Retry, target_of
from protocol.errors import BadSettings, CoreBlocked, CoreUnavailable, Unauthorized
from protocol.messages import CompletionRequest, CoreStatus, Prompt
from protocol.rendezvous import CoreAddress, StoppedCore, address_file, read_or_make_token, write_address, write_stop
from protocol.settings import Settings
from tests.lsp_server.editor import until
from tests.lsp_server.fake_core import READY, FakeCore

REQUEST = CompletionRequest("s", Prompt("a", "b"), max_tokens=4)
QUICK = Retry((0.0, 0.01), give_up=True)


class Watched:
    """A link, and what it said."""

    def __init__(self) -> None:
        self.said: list[LinkStatus] = []
        self.link = CoreLink(self.said.append)

    @property
    def states(self) -> list[str]:
        return [status.state for status in self.said]


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    watched = Watched()
    yield watched
    await watched.link.stop()


class Search:
    """Finds the core after so many failures with an error, and counts the attempts."""

    def __init__(self, core: FakeCore | None = None, error: Exception | None = None, failures: float = 0) -> None:
        self.core, self.error, self.failures = core, error, failures
        self.token = core.token if core else ""
        self.differs = ""
        self.attempts = 0

    async def __call__(self) -> Endpoint:
        self.attempts += 1
        if self.error is not None and self.attempts <= self.failures:
            raise self.error
        return Endpoint(self.core.url, self.token, differs=self.differs)


def target(core: FakeCore) -> CoreTarget:
    return CoreTarget(Search(core), QUICK)


async def test_refuses_at_once_while_there_is_no_connection(watched: Watched) -> None:
    with pytest.raises(CoreUnavailable):
        await watched.link.complete(REQUEST)


async def test_comes_back(watched: Watched, core: FakeCore) -> None:
    await watched.link.connect_to(target(core))
    await until(lambda: watched.link.ready)
    await core.drop_connections()
    await until(lambda: watched.states == ["starting", "ready", "starting", "ready"])


async def test_what_is_to_be_forgotten_is_told_to_every_core_until_it_is_asked_for_again(
    watched: Watched, core: FakeCore
) -> None:
    watched.link.release("me/t")  # nothing that a core would have to be told later
    for session in ("me/s", "me/t"):
        watched.link.forget(session)
    await watched.link.connect_to(target(core))
    await until(lambda: sorted(core.forgotten) == ["me/s", "me/t"])
    await watched.link.complete(replace(REQUEST, session="me/s"))
    await core.drop_connections()
    await until(lambda: sorted(core.forgotten) == ["me/s", "me/t", "me/t"])
    assert core.released == []


async def test_gives_up_after_failures_in_a_row_and_says_why(watched: Watched) -> None:
    find = Search(error=CoreUnavailable("the core exited with status 1\nlast words"), failures=math.inf)
    await watched.link.connect_to(CoreTarget(find, QUICK))
    await until(lambda: watched.link.status.state == "failed")
    assert find.attempts == 3
    assert "last words" in str(watched.link.status.error)
    await asyncio.sleep(0.05)
    assert find.attempts == 3


async def test_a_remote_core_is_tried_for_ever(watched: Watched, core: FakeCore) -> None:
    find = Search(core, CoreUnavailable("asleep"), math.inf)
    await watched.link.connect_to(CoreTarget(find, Retry((0.0, 0.01), give_up=False)))
    await until(lambda: "failed" in watched.states)
    find.failures = 0
    await until(lambda: watched.link.ready)


async def test_a_wrong_token_is_not_tried_again(watched: Watched, core: FakeCore) -> None:
    find = Search(core)
    find.token = "wrong"
    await watched.link.connect_to(CoreTarget(find, QUICK))
    await until(lambda: watched.link.status.state == "failed")
    assert isinstance(watched.link.status.error, Unauthorized)
    assert watched.states == ["starting", "failed"]


async def test_what_cannot_be_started_is_a_failure_too(watched: Watched) -> None:
    find = Search(error=PermissionError("/run/midfill"), failures=math.inf)
    await watched.link.connect_to(CoreTarget(find, QUICK))
    await until(lambda: watched.link.status.state == "failed")
    assert "/run/midfill" in str(watched.link.status.error)


async def test_a_new_target_replaces_the_old(watched: Watched, core: FakeCore) -> None:
    other = FakeCore()
    async with other.listening():
        await watched.link.connect_to(target(core))
        await until(lambda: watched.link.ready)
        await watched.link.connect_to(target(other))
        await until(lambda: watched.link.ready)
        await watched.link.complete(REQUEST)
        assert (len(core.requests), len(other.requests)) == (0, 1)


async def test_two_changes_at_once_leave_one_connection(watched: Watched, core: FakeCore) -> None:
    """The first one waits for the old connection to end when the second one comes."""
    other = FakeCore()
    async with other.listening():
        await watched.link.connect_to(target(core))
        await until(lambda: watched.link.ready)
        await asyncio.gather(*(watched.link.connect_to(target(one)) for one in (other, core, other)))
        await until(lambda: watched.link.ready)
        await until(lambda: (len(core.connections), len(other.connections)) == (0, 1))
        await watched.link.stop()
        await until(lambda: not core.connections and not other.connections)


async def test_a_core_with_other_settings_is_asked_to_give_way(watched: Watched, core: FakeCore) -> None:
    """It is used as long as it stays, and the status says why."""
    core.kept = "1 other client uses it"
    find = Search(core)
    find.differs = "the running core was started with weights = int8"
    await watched.link.connect_to(CoreTarget(find, QUICK))
    await until(lambda: watched.link.status.note)
    assert core.stops == ["replace"]
    assert watched.link.ready
    assert watched.link.status.note == "the running core was started with weights = int8; 1 other client uses it"
    assert (await watched.link.complete(REQUEST)).text == "x = 1"


@pytest.mark.parametrize("kept", ["", "it was started by hand"])
async def test_a_failed_core_that_gives_way_shows_its_failure_only_if_it_stays(
    watched: Watched, core: FakeCore, kept: str
) -> None:
    """The failure is of settings that have been corrected."""
    core.status, core.kept = CoreStatus("failed", "fake", detail="no device 'banana'"), kept
    differs = "the running core was started with device = banana"

    async def find() -> Endpoint:
        if core.stops and not kept:
            core.status, differs_now = READY, ""
        else:
            differs_now = differs
        return Endpoint(core.url, core.token, differs=differs_now)

    await watched.link.connect_to(CoreTarget(find, QUICK))
    await until(lambda: watched.states[-1:] == ["failed" if kept else "ready"])
    assert ("failed" in watched.states) == bool(kept)
    assert watched.link.status.note == (f"{differs}; {kept}" if kept else "")


async def test_a_stopped_core_is_started_again_only_on_request(watched: Watched, core: FakeCore) -> None:
    find, why = Search(core), ""

    def start_again() -> None:
        nonlocal why
        why = ""

    await watched.link.connect_to(CoreTarget(find, QUICK, lambda: why, start_again))
    await until(lambda: watched.link.ready)
    watched.link.start_again()  # nothing to do
    why = "Neovim stopped the core"
    watched.link.client.stop("stop")
    await until(lambda: watched.link.status == LinkStatus("stopped", note="Neovim stopped the core"))
    await asyncio.sleep(0.05)
    assert find.attempts == 1
    core.status = READY
    watched.link.start_again()
    await until(lambda: watched.link.ready)
    assert find.attempts == 2


async def test_a_core_in_the_way_is_told_at_once_and_tried_until_it_is_not(watched: Watched, core: FakeCore) -> None:
    find = Search(core, CoreBlocked("the running core has another version"), failures=5)
    await watched.link.connect_to(CoreTarget(find, QUICK))
    await until(lambda: watched.link.ready)
    assert watched.states == ["starting", "failed", "ready"]
    assert "another version" in str(watched.said[1].error)
    assert find.attempts == 6


@pytest.fixture
def own_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(tmp_path))
    return read_or_make_token(tmp_path)


@pytest.mark.parametrize("core", ["wss://gpu-box:8765/ws", "ws://127.0.0.1:8765/ws", "ws://localhost:1/ws", "ws://[::1]:1"])
async def test_this_machines_token_goes_to_no_address_that_is_named(core: str, own_token: str) -> None:
    """Not on this machine either: anything may listen there."""
    with pytest.raises(Unauthorized, match="needs its token: set coreToken"):
        await target_of(Settings(core=core), 0.0).find()
    assert (await target_of(Settings(core=core, core_token="theirs"), 0.0).find()).token == "theirs"


@pytest.mark.parametrize(
    ("core", "address"),
    [
        ("wss://gpu-box:8765", "wss://gpu-box:8765/ws"),
        ("wss://gpu-box:8765/", "wss://gpu-box:8765/ws"),
        ("wss://gpu-box/behind/a/proxy/", "wss://gpu-box/behind/a/proxy"),
    ],
)
async def test_the_path_may_be_left_out(core: str, address: str) -> None:
    assert (await target_of(Settings(core=core, core_token="theirs"), 0.0).find()).url == address


@pytest.mark.parametrize("core", ["gpu-box:8765", "http://gpu-box", "wss://", "ws://[::1", "ws://a:port", "ws://a:99999"])
async def test_what_is_no_address_is_named(core: str) -> None:
    with pytest.raises(BadSettings, match="expected ws://HOST:PORT") as caught:
        await target_of(Settings(core=core, core_token="theirs"), 0.0).find()
    assert repr(core) in str(caught.value)


def test_a_stop_is_told_with_its_author_and_ended_on_request_or_by_a_core(own_token: str, tmp_path: Path) -> None:
    target, file = target_of(Settings(), 1000.0), address_file(tmp_path, "bundled")
    assert target.stopped() == ""
    for end in (target.start_again, lambda: write_address(file, CoreAddress("ws://127.0.0.1:1/ws", 7, "bundled", {}))):
        write_stop(file, StoppedCore("Neovim", at=1001.0))
        assert target.stopped().startswith("Neovim stopped the core: request a suggestion by hand")
        end()
        assert target.stopped() == ""


def test_a_client_that_begins_after_the_stop_starts_a_core(own_token: str, tmp_path: Path) -> None:
    write_stop(address_file(tmp_path, "bundled"), StoppedCore("Neovim", at=1001.0))
    assert target_of(Settings(), 1000.0).stopped()
    assert target_of(Settings(), 1002.0).stopped() == ""
    write_stop(address_file(tmp_path, "bundled"), StoppedCore("Neovim"))  # an older version's, without a time
    assert target_of(Settings(), 1000.0).stopped() == ""
