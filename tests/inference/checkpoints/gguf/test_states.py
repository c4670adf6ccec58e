from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inference.checkpoints.gguf.metadata import GgufHeader
from inference.checkpoints.gguf.states import state_bytes

DELTA = {"ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 16, "ssm.inner_size": 4096}
MAMBA = {"ssm.conv_kernel": 4, "ssm.state_size": 128, "ssm.group_count": 1, "ssm.inner_size": 8192}


@pytest.mark.parametrize(
    ("sizes", "mebibytes"),
    [
        ({"block_count": 32, "full_attention_interval": 4, **DELTA}, 50.25),  # Qwen3.5-9B, as llama.cpp logs it
        ({"block_count": 40, "attention.head_count_kv": (0,) * 36 + (8,) * 4, **MAMBA}, 147.48),  # Granite-4-H-small
        ({"block_count": 16, "attention.head_count_kv": (0,) * 10 + (8,) * 6, "embedding_length": 2048,
          "shortconv.l_cache": 3}, 0.16),  # LFM2-1.2B
        ({"block_count": 4, "attention.head_count": 32, "kda.head_dim": 128, "ssm.conv_kernel": 4}, 8.56),  # KDA
        ({"block_count": 32, "attention.head_count_kv": 8, "embedding_length": 4096}, 0),
        ({"block_count": "many", "ssm.inner_size": [], "ssm.state_size": -1}, 0),
        ({}, 0),
    ],
)  # fmt: skip
def test_the_size_of_a_copy_of_the_states(sizes: dict[str, Any], mebibytes: float) -> None:
    metadata = {"general.architecture": "a"} | {f"a.{key}": value for key, value in sizes.items()}
    assert round(state_bytes(GgufHeader(Path("model.gguf"), metadata, {})) / 2**20, 2) == mebibytes
