"""Whose token goes where, and which core ends the wait for one."""

from pathlib import Path

import pytest

from lsp_server.core.target import target_of
from protocol.errors import BadSettings, Unauthorized
from protocol.rendezvous import CoreAddress, StoppedCore, address_file, read_or_make_token, write_address, write_stop
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


@pytest.mark.parametrize(
    "core", ["gpu-box:8765", "http://gpu-box", "wss://", "ws://[::1", "ws://a:port", "ws://a:99999"]
)
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
