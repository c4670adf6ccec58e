"""Configs of hybrid models in GGUF files, which the CPU kernel runs: LFM2, and the text part of Qwen3.5."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inference.checkpoints.gguf.config import check_keys, number_of, shared_config, unsupported
from inference.checkpoints.gguf.metadata import GgufHeader, midfill_notes
from inference.checkpoints.kernel_shape import STORED_OTHERWISE
from protocol.errors import BadModel

_SHARED = (
    *("block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count"),
    *("attention.head_count_kv", "attention.layer_norm_rms_epsilon", "rope.freq_base"),
)
_HEADS = ("attention.key_length", "attention.value_length", "rope.dimension_count")
_SSM = tuple(f"ssm.{key}" for key in ("conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count"))
_PATTERN = ("full_attention_interval", "attention.recurrent_layers")
NEXTN = "nextn_predict_layers"
"""Layers behind the model's own that draft further tokens; they are not read."""


def hybrid_config(parts: Sequence[GgufHeader]) -> dict[str, Any]:
    """The model's config, in the terms of transformers; BadModel, with the file and the value, if it is unsupported."""
    header = parts[0]
    read, required, family = _FAMILIES[header.architecture]
    shared = shared_config(parts, (*_SHARED, *required))
    check_keys(header, {*_SHARED, *_HEADS, *required, *read, "vocab_size"})
    own = {"num_hidden_layers": layers_of(header), STORED_OTHERWISE: True, "midfill": midfill_notes(header)}
    return shared | own | family(header)


def layers_of(header: GgufHeader) -> int:
    """The layers of the model itself; BadModel for no number that a model could have."""
    layers, further = number_of(header, "block_count"), number_of(header, NEXTN, 0)
    if not isinstance(layers, int) or not isinstance(further, int) or not 0 <= further < layers <= len(header.tensors):
        raise BadModel(unsupported(header, "block_count", header.of_model("block_count")))
    return layers - further


def _lfm2(header: GgufHeader) -> dict[str, Any]:
    """Layers without KV heads are convolutions."""
    heads, layers = header.of_model("attention.head_count_kv"), layers_of(header)
    of_layers = heads if isinstance(heads, tuple) else (heads,) * layers
    kv_heads = {count for count in of_layers if count}
    if len(of_layers) != layers or len(kv_heads) != 1:
        raise BadModel(unsupported(header, "attention.head_count_kv", heads))
    query_heads = number_of(header, "attention.head_count")
    head_dim = number_of(header, "embedding_length") // query_heads if query_heads else 0
    _check_heads(header, head_dim, head_dim)
    return {
        "model_type": "lfm2",
        "num_key_value_heads": kv_heads.pop(),
        "norm_eps": number_of(header, "attention.layer_norm_rms_epsilon"),
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["full_attention" if count else "conv" for count in of_layers],
        "conv_L_cache": number_of(header, "shortconv.l_cache"),
        "rope_parameters": _rope(header),
    }


def _qwen35(header: GgufHeader) -> dict[str, Any]:
    head_dim, turned = number_of(header, "attention.key_length"), number_of(header, "rope.dimension_count")
    inner, heads = number_of(header, "ssm.inner_size"), number_of(header, "ssm.time_step_rank")
    if not head_dim or not heads:
        raise BadModel(unsupported(header, "attention.key_length", head_dim))
    _check_heads(header, head_dim, turned)
    return {
        "model_type": "qwen3_5_text",
        "num_key_value_heads": number_of(header, "attention.head_count_kv"),
        "head_dim": head_dim,
        "rms_norm_eps": number_of(header, "attention.layer_norm_rms_epsilon"),
        "layer_types": _qwen_kinds(header),
        "linear_conv_kernel_dim": number_of(header, "ssm.conv_kernel"),
        "linear_key_head_dim": number_of(header, "ssm.state_size"),
        "linear_value_head_dim": inner // heads,
        "linear_num_key_heads": number_of(header, "ssm.group_count"),
        "linear_num_value_heads": heads,
        "rope_parameters": {**_rope(header), "partial_rotary_factor": turned / head_dim},
    }


def _qwen_kinds(header: GgufHeader) -> list[str]:
    """As a list of the recurrent layers says, or with attention in every so manieth layer."""
    layers, told = layers_of(header), header.of_model("attention.recurrent_layers")
    if told is None:
        interval = number_of(header, "full_attention_interval", 4)
        if not isinstance(interval, int) or interval < 1:
            raise BadModel(unsupported(header, "full_attention_interval", interval))
        told = tuple((number + 1) % interval != 0 for number in range(layers))
    if not isinstance(told, tuple) or len(told) < layers:
        raise BadModel(unsupported(header, "attention.recurrent_layers", told))
    return ["linear_attention" if recurrent else "full_attention" for recurrent in told[:layers]]


def _check_heads(header: GgufHeader, head_dim: int, turned: int) -> None:
    """Refuse heads whose values have another size than their keys, and RoPE of other parts of them."""
    for key, expected in zip(_HEADS, (head_dim, head_dim, turned), strict=True):
        if number_of(header, key, expected) != expected:
            raise BadModel(f"{unsupported(header, key, header.of_model(key))}, only {expected}")


def _rope(header: GgufHeader) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": number_of(header, "rope.freq_base")}


_Family = tuple[Sequence[str], Sequence[str], Callable[[GgufHeader], dict[str, Any]]]
_FAMILIES: Mapping[str, _Family] = {
    "lfm2": ((), ("shortconv.l_cache",), _lfm2),
    "qwen35": (
        (*_PATTERN, NEXTN, "rope.dimension_sections"),  # sections of positions, which are the same for text
        (*_SSM, "attention.key_length", "rope.dimension_count"),
        _qwen35,
    ),
}
"""By architecture of llama.cpp: the keys that are read, those that must be there as well, and what the file says."""
HYBRIDS = tuple(_FAMILIES)
