"""When a core ends because its clients ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from inference.core.lifecycle import ConnectedClients, Shutdown
from protocol.messages import CoreStatus

READY = CoreStatus("ready", "tiny")


def test_listeners_are_notified_while_they_are_here() -> None:
    clients = ConnectedClients()
    heard: list[CoreStatus] = []
    clients.announce(READY)
    with clients.listen(heard.append):
        assert clients.connections == 1
        clients.announce(READY)
    clients.announce(READY)
    assert heard == [READY]
    assert clients.connections == 0


def test_nobody_is_here_only_when_the_last_has_left() -> None:
    clients = ConnectedClients()
    assert clients.alone_for_s() >= 0
    with clients.visit():
        with clients.listen(lambda status: None):
            assert clients.alone_for_s() == 0
        assert clients.alone_for_s() == 0
        assert clients.connections == 0
    before = clients.alone_for_s()
    assert clients.alone_for_s() >= before >= 0


class Core:
    def __init__(self) -> None:
        self.clients = ConnectedClients()
        self.status = CoreStatus("ready", "tiny")
        self.visits = ExitStack()

    def shutdown(self, *, replaceable: bool = True) -> Shutdown:
        return Shutdown(self.clients, lambda: self.status, replaceable=replaceable)

    def come(self) -> ExitStack:
        """A client; close it to let it go."""
        client = self.visits.enter_context(ExitStack())
        client.enter_context(self.clients.visit())
        return client


@pytest.fixture
def core() -> Iterator[Core]:
    core = Core()
    with core.visits:
        yield core


def test_a_client_that_is_alone_replaces_the_core(core: Core) -> None:
    shutdown = core.shutdown()
    core.come()
    assert not shutdown.due
    assert shutdown.ask("a", "replace") == ""
    assert shutdown.due
    assert not shutdown.stopped


def test_a_core_that_others_use_goes_when_they_have_left_or_wish_the_same(core: Core) -> None:
    shutdown = core.shutdown()
    _, other, third = core.come(), core.come(), core.come()
    assert shutdown.ask("a", "replace") == "2 other clients use it"
    other.close()
    assert shutdown.ask("a", "replace") == "1 other client uses it"
    assert not shutdown.due
    assert shutdown.ask("c", "replace") == ""
    assert shutdown.due
    shutdown.withdraw("c")
    assert not shutdown.due
    third.close()
    assert shutdown.due


def test_no_client_at_all_is_no_wish(core: Core) -> None:
    assert not core.shutdown().due


def test_a_failed_core_is_replaced_at_once(core: Core) -> None:
    for replaceable in (True, False):
        shutdown = core.shutdown(replaceable=replaceable)
        core.come(), core.come()
        core.status = CoreStatus("failed", "tiny")
        assert shutdown.ask("a", "replace") == ""
        assert shutdown.due


def test_a_core_that_was_started_by_hand_ends_on_purpose_alone(core: Core) -> None:
    shutdown = core.shutdown(replaceable=False)
    core.come()
    assert "started by hand" in shutdown.ask("a", "replace")
    assert "started by hand" in shutdown.ask("a", "restart")
    assert not shutdown.due
    assert shutdown.ask("a", "stop") == ""
    assert shutdown.due
    assert shutdown.stopped


def test_stop_and_restart_do_not_wait_for_others(core: Core) -> None:
    for how in ("stop", "restart"):
        shutdown = core.shutdown()
        core.come(), core.come()
        assert shutdown.ask("a", how) == ""  # type: ignore[arg-type]
        assert shutdown.due
        assert shutdown.stopped == (how == "stop")
