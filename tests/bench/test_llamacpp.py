from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.bench.conftest import Figures, needs_kernel

pytest.importorskip("gguf")

FAKE = Path(__file__).with_name("fake_llama_server.py")


@needs_kernel
def test_a_tiny_run_compares_each_order_with_midfill(
    model: str, tmp_path: Path, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tmp_path / "llama-server"
    server.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
    server.chmod(0o755)
    monkeypatch.setenv("FAKE_LLAMA_LOG", str(tmp_path / "log"))
    arguments = ("--server", server, "--model", model, "--kind", "bf16", "--warm-up", "1", "--limit", "2")
    result = figures("llamacpp.py", *arguments)
    assert result["llama.cpp"] == "version: fake"
    found = result["models"][model]
    assert found["agreement"] == {"prompts": 8, "same_tokens": 0, "same_continuation": 0}, "the fake knows no words"
    sides = found["sides"]
    assert list(sides) == ["midfill", "midfill int8", "llama.cpp bf16", "llama.cpp bf16, spm"]
    assert sides["midfill"]["times"]["midfill"] == {"p50": 1.0, "p95": 1.0, "p99": 1.0}
    assert sides["llama.cpp bf16"]["recomputed_tokens"]["p50"] == 500
    assert sides["llama.cpp bf16, spm"]["recomputed_tokens"]["p50"] == 2
    assert all(row["time_to_suggestion_ms"]["p50"] > 0 for row in sides.values())

    asked = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert len(asked) == 8 + 2 * 3, "the prompts of the agreement, and three keys in two orders"
    assert all(request["input_prefix"].endswith("\n") and "\n" not in request["prompt"] for request in asked)
    assert all(request["cache_prompt"] and request["n_predict"] == 16 for request in asked)
