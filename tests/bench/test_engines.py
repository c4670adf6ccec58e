from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench.conftest import Figures, RunBench
from tests.inference.tiny import ROOT

PROGRAM = f"""#!/bin/sh
if [ "$1" = -c ]; then
    echo fake
    exit
fi
cd '{ROOT}'
# -m MODULE --model FOLDER --host HOST --port PORT
exec '{sys.executable}' -m tests.inference.remote.fake_servers vllm "$8" "$4"
"""


def test_vllm_is_asked_by_midfill_and_in_rendered_psm(tmp_path: Path, figures: Figures) -> None:
    program = tmp_path / "python"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    result = figures("engines.py", "--vllm", program, "--warm-up", "1", "--limit", "12")
    assert result["vLLM"] == "fake"
    assert result["other_side"] == "PSM, as Continue"
    ours, theirs = result["all keys"]["sides"]
    assert result["all keys"]["keystrokes"] == 12
    assert 0 < result["keys that ask the engine"]["keystrokes"] <= 12
    assert theirs["generated_tokens_mean"] > 0
    assert theirs["recomputed_tokens"]["p99"] <= 307 + 204 + 3, "the windows of Continue, and the markers"
    assert theirs["recomputed_tokens"]["p50"] > 10 * ours["recomputed_tokens"]["p50"]


def test_an_engine_must_be_named(run_bench: RunBench) -> None:
    with pytest.raises(SystemExit):
        run_bench("engines.py")
