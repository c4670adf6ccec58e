"""Models outside the Llama family that the CPU kernel computes: StarCoder2, and hybrids of attention with short
convolutions (LFM2) or a delta rule (Qwen3.5).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from inference.checkpoints.architecture import Architecture, DeltaRule, LayerKind, ModelShape

_KINDS: Mapping[str, Mapping[str, LayerKind]] = {
    "lfm2": {"full_attention": "attention", "conv": "convolution"},
    "qwen3_5": {"full_attention": "attention", "linear_attention": "delta"},
    "qwen3_5_text": {"full_attention": "attention", "linear_attention": "delta"},
}
"""Kinds of layers by the names of transformers, by model_type of hybrid models."""
STORED_OTHERWISE = "stored_as_gguf"
"""In a config: the weights are as llama.cpp's converter leaves them: norms that begin at 1, heads in tiles."""


def read_kernel_shape(config: Any, shape: ModelShape, *, is_gguf: bool) -> Architecture | None:
    """The architecture of such a model, by the transformers config of its text part; None if midfill has none for it.

    `shape` is what transformers makes of it; `is_gguf`: whether the weights are stored as in GGUF files.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type", "default") != "default":
        return None
    try:
        family = _starcoder2(config) if shape.model_type == "starcoder2" else _hybrid(config, shape, rope, is_gguf=is_gguf)
        if family is None:
            return None
        return Architecture(
            **{field.name: getattr(shape, field.name) for field in fields(shape)},
            hidden=_size(config, "hidden_size"),
            heads=_heads(config, shape),
            vocabulary=_size(config, "vocab_size"),
            tied_embeddings=bool(config.tie_word_embeddings),
            rope_theta=_positive(rope["rope_theta"]),
            rope_type="default",
            attention_scale=shape.head_dim**-0.5,
            **family,
        )
    except (ValueError, TypeError, KeyError, OverflowError):
        return None


def _starcoder2(config: Any) -> dict[str, Any] | None:
    if config.hidden_act != "gelu_pytorch_tanh":
        return None
    return {
        "intermediate": _size(config, "intermediate_size"),
        "norm_epsilon": _positive(config.norm_epsilon),
        "qk_norm": False,
        "window": _size(config, "sliding_window") if config.sliding_window else 0,
        "gated_mlp": False,
        "norm_biases": True,
    }


def _hybrid(config: Any, shape: ModelShape, rope: Mapping[str, Any], *, is_gguf: bool) -> dict[str, Any] | None:
    kinds = _KINDS.get(shape.model_type, {})
    names = tuple(getattr(config, "layer_types", None) or ())
    if len(names) != shape.layers or not set(names) <= kinds.keys():
        return None
    if getattr(config, "conv_bias", False) or getattr(config, "hidden_act", "silu") != "silu":
        return None
    is_lfm2 = shape.model_type == "lfm2"
    return {
        "intermediate": _lfm2_intermediate(config) if is_lfm2 else _size(config, "intermediate_size"),
        "norm_epsilon": _positive(config.norm_eps if is_lfm2 else config.rms_norm_eps),
        "qk_norm": True,
        "rotary_dim": shape.head_dim if is_lfm2 else _rotary_dim(rope, shape),
        "gated_output": not is_lfm2,
        "norm_offset": 0.0 if is_lfm2 or is_gguf else 1.0,
        "layer_kinds": tuple(kinds[name] for name in names),
        "kept_inputs": _size(config, "conv_L_cache" if is_lfm2 else "linear_conv_kernel_dim") - 1,
        "delta": None if is_lfm2 else _delta_rule(config, is_gguf=is_gguf),
    }


def _heads(config: Any, shape: ModelShape) -> int:
    heads = _size(config, "num_attention_heads")
    if heads % shape.kv_heads:
        raise ValueError(f"{heads} attention heads cannot share {shape.kv_heads} key-value heads")
    return heads


def _rotary_dim(rope: Mapping[str, Any], shape: ModelShape) -> int:
    turned = int(shape.head_dim * (rope.get("partial_rotary_factor") or 1))
    if not 0 < turned <= shape.head_dim:
        raise ValueError(f"RoPE cannot turn {turned} of {shape.head_dim} numbers")
    return turned


def _delta_rule(config: Any, *, is_gguf: bool) -> DeltaRule:
    rule = DeltaRule(
        key_heads=_size(config, "linear_num_key_heads"),
        value_heads=_size(config, "linear_num_value_heads"),
        key_dim=_size(config, "linear_key_head_dim"),
        value_dim=_size(config, "linear_value_head_dim"),
        tiled_heads=is_gguf,
    )
    if rule.value_heads % rule.key_heads:
        raise ValueError(f"{rule.value_heads} value heads cannot share {rule.key_heads} key heads")
    return rule


def _lfm2_intermediate(config: Any) -> int:
    """The width of the MLP, which LFM2's modules may compute from the one in the config."""
    width = _size(config, "intermediate_size")
    if not config.block_auto_adjust_ff_dim:
        return width
    width = int(2 * width / 3)
    if config.block_ffn_dim_multiplier is None:
        return width
    multiple = _size(config, "block_multiple_of")
    return -(-int(config.block_ffn_dim_multiplier * width) // multiple) * multiple


def _positive(value: Any) -> float:
    if not 0 < float(value) < math.inf:
        raise ValueError(f"{value!r} is no number above 0")
    return float(value)


def _size(config: Any, name: str) -> int:
    value = getattr(config, name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}")
    return value
