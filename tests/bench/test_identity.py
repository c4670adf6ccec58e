import json
from pathlib import Path

import pytest

from inference.backends.cpu.library import unavailable_reason
from tests.bench.conftest import RunBench
from tests.inference.tiny import write_checkpoint


@pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))
def test_a_tiny_run_finds_the_same_texts_with_fewer_forwards(tmp_path: Path, run_bench: RunBench) -> None:
    shape = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1}  # heads that the kernel knows
    model = write_checkpoint(tmp_path / "model", max_position_embeddings=8192, **shape)
    run_bench("identity.py", "--model", model, "--requests", "8", "--json", tmp_path / "figures.json")
    ways = {figures["way"]: figures for figures in json.loads((tmp_path / "figures.json").read_text())}
    assert {(figures["texts"], figures["differing"]) for figures in ways.values()} == {(8, 0)}
    assert {ways[way]["logprob_distance"] for way in ways if way.startswith("kernel")} == {0.0}
    assert 0 < ways["torch"]["logprob_distance"] < 1e-4
    plain, speculation, batching, both = (
        ways[way] for way in ("kernel", "kernel, speculation", "kernel, batching", "kernel, both")
    )
    assert both["accepted_tokens"] > 0
    assert max(speculation["forwards"], batching["forwards"]) < plain["forwards"]
    assert both["forwards"] <= batching["forwards"]  # equal if drafts shorten only requests that end early anyway
