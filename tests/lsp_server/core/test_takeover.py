"""Which core makes place, and that no client starts one meanwhile; tests/e2e/test_core_control.py has the processes."""

from __future__ import annotations

import os
from pathlib import Path

import filelock
import pytest

from lsp_server.core.process import starting_lock
from lsp_server.core.takeover import place_of
from protocol.rendezvous import CoreAddress, address_file, hold, write_address


@pytest.mark.parametrize("running", [True, False])
def test_a_core_by_hand_stays_and_no_client_starts_one_meanwhile(tmp_path: Path, running: bool) -> None:
    file, told = address_file(tmp_path, "m"), []
    # One that is killed leaves its address.
    write_address(file, CoreAddress("ws://127.0.0.1:9/ws", os.getpid(), "m", replaceable=not running))
    with hold(file) if running else hold(address_file(tmp_path, "another")):
        with place_of(file, told.append), pytest.raises(filelock.Timeout):
            starting_lock(file).acquire(blocking=False)
        with starting_lock(file).acquire(blocking=False):
            assert told == []
