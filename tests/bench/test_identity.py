import json
import subprocess
import sys
from pathlib import Path

import pytest

from inference.backends.cpu.library import unavailable_reason

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
def test_a_tiny_run_finds_the_same_texts_with_fewer_forwards(tmp_path: Path) -> None:
    command = [sys.executable, "bench/identity.py", "--requests", "8", "--json", str(tmp_path / "figures.json")]
    subprocess.run(command, cwd=ROOT, check=True)
    ways = {figures["way"]: figures for figures in json.loads((tmp_path / "figures.json").read_text())}
    assert {(figures["texts"], figures["differing"]) for figures in ways.values()} == {(8, 0)}
    assert {ways[way]["logprob_distance"] for way in ways if way.startswith("kernel")} == {0.0}
    assert 0 < ways["torch"]["logprob_distance"] < 1e-4
    plain, both = ways["kernel"], ways["kernel, both"]
    assert both["accepted_tokens"] > 0
    assert both["forwards"] < ways["kernel, batching"]["forwards"] < plain["forwards"]
