"""A machine that is smaller than it looks: the plan of memory in a container."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference.checkpoints.checkpoint import find_checkpoint
from inference.loading import placement
from inference.loading.main_memory import main_memory
from inference.loading.options import EngineOptions
from protocol.settings import BUNDLED_MODEL
from tests.faults.attacked import report
from tests.inference.loading.test_main_memory import write_group

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

LIMIT = 10**9
USED = 300 * 10**6


def test_the_plan_fits_a_container_of_a_gigabyte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"memory.max": f"{LIMIT}\n", "memory.current": f"{USED}\n", "memory.stat": "inactive_file 0\n"}
    write_group(tmp_path, "0::/pod/core\n", "pod/core", files)
    monkeypatch.setattr(placement, "main_memory", lambda: main_memory(tmp_path))
    options = EngineOptions(BUNDLED_MODEL)
    plan = placement.plan_load(options, find_checkpoint(BUNDLED_MODEL), placement.Machine())
    report(
        "a container of 1 GB, 0.3 in use: MB planned", f"{(LIMIT - USED) // 10**6}", f"{plan.memory.in_use // 10**6}"
    )
    assert plan.memory.in_use <= LIMIT - USED
