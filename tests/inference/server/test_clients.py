from __future__ import annotations

from inference.server.clients import Presence
from protocol.messages import CoreStatus

READY = CoreStatus("ready", "tiny")


def test_listeners_are_told_while_they_are_here() -> None:
    presence = Presence()
    heard: list[CoreStatus] = []
    presence.announce(READY)
    with presence.listen(heard.append):
        assert presence.connections == 1
        presence.announce(READY)
    presence.announce(READY)
    assert heard == [READY]
    assert presence.connections == 0


def test_nobody_is_here_only_when_the_last_has_left() -> None:
    presence = Presence()
    assert presence.alone_for_s() >= 0
    with presence.visit():
        with presence.listen(lambda status: None):
            assert presence.alone_for_s() == 0
        assert presence.alone_for_s() == 0
        assert presence.connections == 0
    before = presence.alone_for_s()
    assert presence.alone_for_s() >= before >= 0
