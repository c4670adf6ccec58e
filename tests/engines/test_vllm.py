"""A recorded session through a real vLLM that serves the model `tiny`, in blocks of 32 tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference.checkpoints.checkpoint import BUNDLED_FOLDERS
from midfill.replay.command import ReplayOptions
from midfill.replay.player import replay
from midfill.replay.trace import read_trace
from protocol.settings import Settings

pytestmark = pytest.mark.engines

TRACE = Path(__file__).parents[1] / "data" / "rustcode-3000-3400.json.gz"
STEPS = 100
BLOCK_TOKENS = 32  # of the fixture's vLLM
SLACK_TOKENS = 3
HIT_SHARE = 0.95
CHECKED = 10


async def test_a_recorded_session_hits_but_for_a_block_and_its_texts_are_the_cold_ones(vllm_url: str) -> None:
    settings = Settings(
        model=str(BUNDLED_FOLDERS["tiny"]),
        engine=f"openai={vllm_url}",
        prefix_tokens=1024,
        suffix_tokens=512,
        max_tokens=12,
        shorten_unlikely=False,
    )
    options = ReplayOptions(engine=True, strategies="efim", limit=STEPS, moves=True, language="rust", verify=CHECKED)
    result = await replay(read_trace(TRACE), settings, options, lambda _strategy, _done: None)
    (found,) = result.strategies
    assert found.errors == ()
    costs = [record.recomputed_tokens - record.inserted_tokens for record in found.records]
    hits = sum(cost <= BLOCK_TOKENS + SLACK_TOKENS for cost in costs) / len(costs)
    print(f"hits but for a block: {hits:.3f}")  # noqa: T201 - the figure, with pytest -s
    assert hits >= HIT_SHARE
