from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench.conftest import Figures, needs_kernel

pytest.importorskip("gguf")

FAKE_BENCH = """
import json, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
seconds = 2 if options["-fa"] == "on" else 1
print(json.dumps([{"n_gen": int(options["-n"]), "samples_ns": [seconds * 1e9] * int(options["-r"])}]))
"""
FAKE_QUANTIZER = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2])\n"


@needs_kernel
def test_a_tiny_run_takes_the_better_of_the_peers_settings(tmp_path: Path, figures: Figures) -> None:
    for name, text in (("llama-bench", FAKE_BENCH), ("llama-quantize", FAKE_QUANTIZER)):
        program = tmp_path / name
        program.write_text(f"#!{sys.executable}\n{text}")
        program.chmod(0o755)
    size = ("--shape", "tiny", "--rounds", "1", "--threads", "1")
    rows = figures("llama_tokens.py", "--llama-bench", tmp_path / "llama-bench", *size)["shapes"]["tiny"]
    found = {(row["case"], row["engine"]): row for row in rows}
    assert found["512+1", "llama.cpp q8_0"]["milliseconds"] == 1000 / 16, "a run's 16 tokens, one at a time"
    assert found["2048+4", "llama.cpp bf16"]["milliseconds"] == 1000
    assert found["512+4", "llama.cpp q4_0"]["milliseconds"] == 1000
    assert found["0+2048", "engine int4"]["times_as_fast_as"]["q4_0"] > 0
    assert found["512+4", "kernel int4, KV bfloat16"]["times_as_fast_as"]["q4_0"] > 1
    assert found["0+2048", "engine bfloat16"]["times_as_fast_as"]["q8_0"] > 0
    assert found["2048+1", "kernel int8, KV float32"]["times_as_fast_as"]["q8_0"] > 1
