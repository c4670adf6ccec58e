from __future__ import annotations

import pytest

from inference.core.admission import HostNames

NAMES = HostNames(frozenset({"gpu-box", "192.168.1.5"}))


@pytest.mark.parametrize(
    ("host", "known"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:8765", True),
        ("[::1]:8765", True),
        ("localhost:1", True),
        ("LOCALHOST.", True),
        ("gpu-box:8765", True),
        ("192.168.1.5:8765", True),
        ("192.168.1.6", False),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("evil.example@localhost:1", True),  # the user before the name is no part of it
        ("localhost@evil.example", False),
        ("[::1", False),
        ("", False),
        ("[127.0.0.1]", False),
    ],
)
def test_hosts(host: str, known: bool) -> None:
    assert NAMES.include(host) is known


def test_core_that_listens_on_every_address_is_known_by_each_but_not_by_every_name() -> None:
    everywhere = HostNames(any_address=True)
    assert everywhere.include("192.168.1.6:8765")
    assert not everywhere.include("evil.example")
