from __future__ import annotations

from typing import Any

import pytest

from inference.checkpoints.generic_shape import read_generic_shape
from protocol.errors import BadModel

GPT_BIGCODE = {"model_type": "gpt_bigcode", "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 100}
PHI3 = {
    "model_type": "phi3",
    "hidden_size": 64,
    "num_attention_heads": 2,
    "max_position_embeddings": 4096,
    "original_max_position_embeddings": 512,
    "pad_token_id": 0,
}


def test_each_architecture_has_its_own_names_for_the_same() -> None:
    shape = read_generic_shape(GPT_BIGCODE, "here")
    assert (shape.layers, shape.kv_heads, shape.head_dim, shape.max_positions) == (2, 1, 8, 100)
    assert shape.kv_values_per_token == 2 * 2 * 8
    shape = read_generic_shape({"model_type": "starcoder2", "num_key_value_heads": 3, "num_attention_heads": 6}, "here")
    assert shape.kv_heads == 3


GRANITE = {
    "model_type": "granitemoehybrid",
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
}


LFM2 = {"model_type": "lfm2", "num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]}


def test_the_text_model_of_several_models_in_one() -> None:
    text = {"num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 99}
    shape = read_generic_shape({"model_type": "gemma3", "text_config": text}, "here")
    assert (shape.layers, shape.kv_heads, shape.head_dim, shape.max_positions) == (3, 2, 16, 99)


def test_a_hybrid_class_without_layers_that_keep_a_state() -> None:
    shape = read_generic_shape({**GRANITE, "layer_types": ["attention"] * 3}, "here")
    assert (shape.layers, shape.kv_heads, shape.head_dim) == (3, 2, 16)
    assert (shape.recurrent_layers, shape.kv_values_per_token) == (0, 3 * 2 * 2 * 16)


@pytest.mark.parametrize(
    ("config", "layers", "recurrent", "values"),
    [
        ({**GRANITE, "layer_types": ["mamba", "attention", "mamba"]}, 3, 2, 2 * 2 * 16),
        (LFM2, 2, 1, 2 * 8 * 80),
        ({"model_type": "falcon_h1"}, 32, 32, 32 * 2 * 8 * 128),
        ({"model_type": "mamba2"}, 64, 64, 2 * 32),  # what a page takes in the index
    ],
)
def test_keys_and_values_of_the_layers_that_keep_some(config: dict[str, Any], layers: int, recurrent: int, values: int) -> None:
    shape = read_generic_shape(config, "here")
    assert (shape.layers, shape.recurrent_layers, shape.kv_values_per_token) == (layers, recurrent, values)


def test_models_without_a_bound_on_positions() -> None:
    assert read_generic_shape({"model_type": "bloom", "hidden_size": 32, "n_head": 4}, "here").max_positions == 2048
    assert read_generic_shape({"model_type": "mpt", "max_seq_len": 512}, "here").max_positions == 512


def test_context_ends_where_rope_begins_to_change() -> None:
    assert read_generic_shape(PHI3, "here").max_positions == 4096
    factors = [1.0] * 16
    longrope = {"rope_type": "longrope", "short_factor": factors, "long_factor": factors}
    assert read_generic_shape({**PHI3, "rope_scaling": longrope}, "here").max_positions == 512
    of_kinds = {"full_attention": {**longrope, "original_max_position_embeddings": 256}}
    mellum = {"model_type": "mellum", "max_position_embeddings": 4096, "rope_parameters": of_kinds}
    assert read_generic_shape(mellum, "here").max_positions == 256


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "gpt17"}, "neither midfill nor transformers supports models of type 'gpt17'"),
        ({}, "neither midfill nor transformers supports models of type None"),
        ({"model_type": "t5"}, "'t5' are not causal language models"),
        ({"model_type": "rwkv"}, "'rwkv' keep a state that transformers does not give out"),
        ({"model_type": "minimax"}, "'minimax' keep a state that transformers does not give out"),
        ({"model_type": "deepseek_v2"}, "'deepseek_v2' keep keys and values compressed"),
        ({"model_type": "glm4_moe_lite"}, "'glm4_moe_lite' keep keys and values compressed"),
        ({"model_type": "deepseek_v32"}, "layers of the kind 'indexed_attention' keep more than keys and values"),
        ({"model_type": "gemma4_text"}, "do not have one shape .4 heads of 256 numbers and 4 heads of 512 numbers"),
        ({"model_type": "mimo_v2_flash"}, "do not have one shape .4 heads of 128 numbers and 4 heads of 192"),
        ({"model_type": "starcoder2", "num_key_value_heads": "two"}, "expected int, got str .value: 'two'"),
        ({**GPT_BIGCODE, "n_head": 0}, "num_attention_heads must be a positive integer, not 0"),
        ({**LFM2, "num_key_value_heads": -1}, "num_key_value_heads must be a positive integer, not -1"),
        ({**LFM2, "num_attention_heads": -4}, "num_attention_heads must be a positive integer, not -4"),
        ({**LFM2, "hidden_size": 8}, "head_dim must be a positive integer, not 0"),
        ({"model_type": "qwen3_5_text", "head_dim": -8}, "head_dim must be a positive integer, not -8"),
        ({**GPT_BIGCODE, "n_layer": "many"}, "n_layer"),
        ({**GPT_BIGCODE, "n_layer": 2**40}, "n_layer is 1099511627776, and at most 4096 are plausible"),
    ],
)
def test_what_cannot_run_is_refused_by_name(config: dict[str, Any], message: str) -> None:
    with pytest.raises(BadModel, match=f"config.json.*({message})"):
        read_generic_shape(config, "config.json")
