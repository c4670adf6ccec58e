from __future__ import annotations

from typing import Any

import pytest

from inference.checkpoints.architecture import read_architecture
from protocol.errors import BadModel

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
}


def test_fields() -> None:
    shape = read_architecture({**CONFIG, "rope_theta": 5e5, "tie_word_embeddings": True}, "here")
    assert (shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim) == (2, 64, 4, 2, 16)
    assert (shape.rope_type, shape.rope_theta, shape.tied_embeddings, shape.qk_norm) == ("default", 5e5, True, False)
    assert shape.kv_values_per_token == 2 * 2 * 2 * 16


def test_rope_settings_of_both_generations_of_transformers() -> None:
    old = read_architecture({**CONFIG, "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}, "here")
    new = {"rope_type": "linear", "rope_theta": 5e5, "factor": 2.0}
    assert read_architecture({**CONFIG, "rope_parameters": new}, "here") == old


@pytest.mark.parametrize(
    ("changes", "positions"),
    [
        ({"model_type": "mistral", "sliding_window": 100}, 100),
        ({"model_type": "mistral", "sliding_window": None}, 512),
        ({"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 100}, 512),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 100}, 100),
    ],
)
def test_context_ends_where_attention_begins_to_slide(changes: dict[str, Any], positions: int) -> None:
    assert read_architecture({**CONFIG, **changes}, "here").max_positions == positions


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt2"}, "'gpt2' are not supported"),
        ({"model_type": None}, "None are not supported"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"hidden_size": "big"}, "hidden_size must be a positive integer, not 'big'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a positive integer, not 0"),
        ({"num_key_value_heads": 3}, "4 attention heads cannot share 3"),
        ({"head_dim": 15}, "head dimension 15 is odd"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic'"),
    ],
)
def test_what_cannot_run_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadModel, match=f"config.json.*{message}"):
        read_architecture({**CONFIG, **changes}, "config.json")
