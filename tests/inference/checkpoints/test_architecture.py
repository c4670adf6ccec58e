from __future__ import annotations

from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from inference.checkpoints.architecture import DEFAULTS, SUPPORTED_TYPES, read_architecture
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
        ({"model_type": "mistral", "max_position_embeddings": 8192}, 4096),
        ({"model_type": "qwen2", "use_sliding_window": False, "sliding_window": 100}, 512),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 100}, 100),
    ],
)
def test_context_ends_where_attention_begins_to_slide(changes: dict[str, Any], positions: int) -> None:
    assert read_architecture({**CONFIG, **changes}, "here").max_positions == positions


@pytest.mark.parametrize("kind", SUPPORTED_TYPES)
def test_what_a_config_leaves_out_is_what_transformers_takes(kind: str) -> None:
    given = {name: value for name, value in CONFIG.items() if name != "num_key_value_heads"}
    ours = read_architecture({**given, "model_type": kind, "num_attention_heads": 32, "hidden_size": 2048}, "here")
    theirs = CONFIG_MAPPING[kind](**given | {"num_attention_heads": 32, "hidden_size": 2048})
    assert ours.kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 2048 // 32)
    assert (ours.norm_epsilon, ours.tied_embeddings) == (theirs.rms_norm_eps, theirs.tie_word_embeddings)
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]
    assert DEFAULTS.get(kind, {}).get("sliding_window") == (theirs.sliding_window if kind == "mistral" else None)


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
        ({"rope_scaling": {"rope_type": "spiral"}}, "RoPE of type 'spiral' is not supported: choose one of default, l"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 2.0}}, "'llama3' needs low_freq_factor, which is missing"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": "x"}}, "factor must be a number above 0, not 'x'"),
        ({"rope_scaling": {"rope_type": "divided"}}, "'divided' is not supported"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
    ],
)
def test_what_cannot_run_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadModel, match=f"config.json.*{message}"):
        read_architecture({**CONFIG, **changes}, "config.json")
