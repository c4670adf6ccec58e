"""Whose token goes where, and which core ends the wait for one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lsp_server.core.process import LocalCore
from lsp_server.core.target import target_of
from protocol.errors import BadSettings, Unauthorized
from protocol.rendezvous import CoreAddress, read_or_make_token
from protocol.settings import Settings


@pytest.fixture
def own_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MIDFILL_RUNTIME_DIR", str(tmp_path))
    return read_or_make_token(tmp_path)


@pytest.mark.parametrize(
    "core", ["wss://gpu-box:8765/ws", "ws://127.0.0.1:8765/ws", "ws://localhost:1/ws", "ws://[::1]:1"]
)
async def test_this_machines_token_goes_to_no_address_that_is_named(core: str, own_token: str) -> None:
    """Not on this machine either: anything may listen there."""
    with pytest.raises(Unauthorized, match="needs its token: set coreToken"):
        await target_of(Settings(core=core)).find()
    assert (await target_of(Settings(core=core, core_token="theirs")).find()).token == "theirs"


@pytest.mark.parametrize(
    ("core", "address"),
    [
        ("wss://gpu-box:8765", "wss://gpu-box:8765/ws"),
        ("wss://gpu-box:8765/", "wss://gpu-box:8765/ws"),
        ("wss://gpu-box/behind/a/proxy/", "wss://gpu-box/behind/a/proxy"),
    ],
)
async def test_the_path_may_be_left_out(core: str, address: str) -> None:
    assert (await target_of(Settings(core=core, core_token="theirs")).find()).url == address


@pytest.mark.parametrize(
    "core", ["gpu-box:8765", "http://gpu-box", "wss://", "ws://[::1", "ws://a:port", "ws://a:99999"]
)
async def test_what_is_no_address_is_named(core: str) -> None:
    with pytest.raises(BadSettings, match="expected ws://HOST:PORT") as caught:
        await target_of(Settings(core=core, core_token="theirs")).find()
    assert repr(core) in str(caught.value)


async def test_a_stopped_core_that_still_answers_does_not_end_the_wait_for_another_one(
    own_token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped, another = (CoreAddress("ws://127.0.0.1:1/ws", pid, "bundled", {}) for pid in (7, 8))
    answers = [stopped, stopped, None, another]

    def returns(values: list[Any]) -> Callable[..., Any]:
        async def call(_: object) -> Any:
            return values.pop(0)

        return call

    monkeypatch.setattr("lsp_server.core.target._APPEARS_EVERY_S", 0)
    monkeypatch.setattr(LocalCore, "find_or_start", returns([stopped]))
    monkeypatch.setattr(LocalCore, "find", returns(answers))
    target = target_of(Settings())
    await target.find()
    assert target.appears is not None
    await target.appears()
    assert answers == []
