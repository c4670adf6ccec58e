from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from inference.loading.engine import is_here
from inference.loading.options import EngineOptions
from protocol.errors import BadModel
from tests.inference.tiny import edit_config


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"vocab_size": 600}, r"embed_tokens\.weight has the shape \(605, 48\), but its config implies \(600, 48\)"),
        ({"num_hidden_layers": 3}, r"the checkpoint has no tensor 'model\.layers\.2\.input_layernorm\.weight'"),
        ({"num_hidden_layers": 2**40}, "num_hidden_layers is 1099511627776, and its files have 20 tensors"),
        ({"num_key_value_heads": 4}, r"k_proj\.weight has the shape \(24, 48\), but its config implies \(48, 48\)"),
        ({"model_type": "qwen3", "head_dim": 12}, r"the checkpoint has no tensor 'model\.layers\.0\.self_attn\.q_norm\.weight'"),
        ({"tie_word_embeddings": False}, r"the checkpoint has no tensor 'lm_head\.weight'"),
    ],
)
def test_tensors_that_do_not_fit_the_config_are_named_before_they_are_read(
    tiny_checkpoint: Path, tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    folder = shutil.copytree(tiny_checkpoint, tmp_path / "copy")
    edit_config(folder, **changes)
    with pytest.raises(BadModel, match=reason):
        is_here(EngineOptions(str(folder)))
