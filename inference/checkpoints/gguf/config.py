"""Describes the model in a GGUF file as its config.json would."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from inference.checkpoints.architecture import DIVIDED
from inference.checkpoints.gguf.header import GgufHeader
from inference.checkpoints.weights import StoredTensor
from protocol.errors import BadModel

OURS = ("llama", "qwen2", "qwen3")
"""The architectures of llama.cpp that our decoder runs; its `llama` includes Mistral."""

# Keys that change what a layer computes, with the values that change nothing; absent keys and 0 change nothing either.
_NEUTRAL: dict[str, tuple[object, ...]] = {
    "expert_count": (),
    "attention.causal": (True,),
    "attention.clamp_kqv": (),
    "attention.max_alibi_bias": (),
    "attention.temperature_scale": (),
    "attn_logit_softcapping": (),
    "final_logit_softcapping": (),
    "embedding_scale": (1,),
    "residual_scale": (1,),
    "logit_scale": (1,),
    "use_parallel_residual": (),
    "rope.dimension_sections": (),
    "rope.scaling.attn_factor": (1,),
    "rope.scaling.alpha": (),
    "rope.scaling.yarn_log_multiplier": (),
}
_REQUIRED = (
    *("block_count", "context_length", "embedding_length", "feed_forward_length"),
    *("attention.head_count", "attention.layer_norm_rms_epsilon"),
)
_ROPE_FACTORS = "rope_freqs.weight"


def gguf_config(parts: Sequence[GgufHeader]) -> dict[str, Any]:
    """The model's config, in the terms of transformers; BadModel, with the file and the value, if it is unsupported.

    The first of a model's parts has the fields, and any of them tensors. Imports transformers for an architecture that
    is not one of OURS.
    """
    header = parts[0]
    config = _our_config(parts) if header.architecture in OURS else _generic_config(parts)
    told = {key: header.metadata.get(f"midfill.{key}") for key in ("fim_format", "fragments_suffice")}
    return config | {"midfill": {key: value for key, value in told.items() if value is not None}}


def _our_config(parts: Sequence[GgufHeader]) -> dict[str, Any]:
    header = parts[0]
    for key in _REQUIRED:
        if header.of_model(key) is None:
            raise BadModel(f"{header.path} has no {header.architecture}.{key}: it is incomplete")
    heads, hidden = _number(header, "attention.head_count"), _number(header, "embedding_length")
    head_dim = _number(header, "attention.key_length", hidden // heads if heads else None)
    _check_attention(header, head_dim)
    for key, neutral in _NEUTRAL.items():
        value = header.of_model(key)
        if value and value not in neutral:
            raise BadModel(_unsupported(header, key, value))
    window = _number(header, "attention.sliding_window")
    return {
        "model_type": header.architecture,
        "num_hidden_layers": _number(header, "block_count"),
        "hidden_size": hidden,
        "intermediate_size": _number(header, "feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": _number(header, "attention.head_count_kv"),
        "head_dim": head_dim,
        "vocab_size": _vocabulary(parts),
        "rms_norm_eps": _number(header, "attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": _number(header, "context_length"),
        "tie_word_embeddings": _is_tied(parts),
        "use_sliding_window": bool(window),
        "sliding_window": window,
        "rope_parameters": _rope(parts, head_dim),
    }


def _check_attention(header: GgufHeader, head_dim: Any) -> None:
    """Refuse heads whose values have another size than their keys, and RoPE of a part of a head."""
    if not isinstance(head_dim, int) or head_dim < 1:
        raise BadModel(_unsupported(header, "attention.key_length", head_dim))
    for key in ("attention.value_length", "rope.dimension_count"):
        if _number(header, key, head_dim) != head_dim:
            raise BadModel(f"{_unsupported(header, key, header.of_model(key))}, only {head_dim}, the size of a head")
    scale = _number(header, "attention.scale")
    if scale and not math.isclose(scale, head_dim**-0.5, rel_tol=1e-5):
        raise BadModel(_unsupported(header, "attention.scale", scale))


def _rope(parts: Sequence[GgufHeader], head_dim: Any) -> dict[str, Any]:
    header = parts[0]
    theta = _number(header, "rope.freq_base", 10000.0)
    factor = _number(header, "rope.scaling.factor", _number(header, "rope.scale_linear", 1.0))
    kind = header.of_model("rope.scaling.type", "none" if factor in (0, 1) else "linear")  # as in llama.cpp
    divisors = _rope_factors(parts, head_dim)
    if kind == "none":
        divided = {"rope_type": DIVIDED, "divisors": divisors} if divisors else {"rope_type": "default"}
        return {"rope_theta": theta, **divided}
    if kind not in ("linear", "yarn") or divisors:
        raise BadModel(_unsupported(header, "rope.scaling.type", kind))
    return {
        "rope_type": kind,
        "rope_theta": theta,
        "factor": factor,
        "original_max_position_embeddings": _number(header, "rope.scaling.original_context_length"),
    }


def _rope_factors(parts: Sequence[GgufHeader], head_dim: Any) -> list[float]:
    """What each frequency is divided by, as llama.cpp stores the RoPE scaling of Llama 3; empty if there is none."""
    header, tensor = _find(parts, _ROPE_FACTORS)
    if tensor is None:
        return []
    if tensor.type_name != "F32" or tensor.shape != (head_dim // 2,):
        raise BadModel(f"{header.path}: {_ROPE_FACTORS} is {tensor.type_name} of the shape {tensor.shape}")
    with header.path.open("rb") as file:
        file.seek(tensor.start)
        factors = struct.unpack(f"<{tensor.values}f", file.read(tensor.stop - tensor.start))
    if not all(math.isfinite(factor) and factor > 0 for factor in factors):
        raise BadModel(f"{header.path}: {_ROPE_FACTORS} has values that frequencies cannot be divided by")
    return list(factors)


def _generic_config(parts: Sequence[GgufHeader]) -> dict[str, Any]:
    """By transformers' own table of the keys of an architecture."""
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING

    mapping: dict[str, dict[str, str | None]] = GGUF_CONFIG_MAPPING  # type: ignore[assignment] # it is untyped
    header = parts[0]
    families = {_plain(family): family for family in mapping if family not in ("general", "tokenizer")}
    family = families.get(_plain(header.architecture))
    if family is None:
        raise BadModel(
            f"{header.path}: GGUF files of the architecture {header.architecture!r} are read neither by midfill nor "
            "by transformers: use the model's safetensors files"
        )
    config = {
        name: list(value) if isinstance(value, tuple) else value
        for key, name in mapping[family].items()
        if name is not None and (value := header.of_model(key)) is not None
    }
    config.setdefault("vocab_size", _vocabulary(parts))
    if "rope.freq_base" not in mapping[family] and (theta := _number(header, "rope.freq_base")) is not None:
        config["rope_theta"] = theta
    model_type = "gemma3_text" if family == "gemma3" else family  # these files hold the text model alone
    return config | {"model_type": model_type, "tie_word_embeddings": _is_tied(parts)}


def _plain(family: str) -> str:
    return family.replace("-", "").replace("_", "")


def _vocabulary(parts: Sequence[GgufHeader]) -> int:
    _, embedding = _find(parts, "token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise BadModel(f"{parts[0].path} has no embedding (token_embd.weight): it is no language model")
    return embedding.shape[0]


def _is_tied(parts: Sequence[GgufHeader]) -> bool:
    return _find(parts, "output.weight")[1] is None


def _find(parts: Sequence[GgufHeader], name: str) -> tuple[GgufHeader, StoredTensor | None]:
    """The tensor of this name and the part that has it; the first part and None if there is no such tensor."""
    found = ((part, part.tensors[name]) for part in parts if name in part.tensors)
    return next(found, (parts[0], None))


def _number(header: GgufHeader, key: str, default: Any = None) -> Any:
    """A number that holds for all layers; BadModel for anything else."""
    value = header.of_model(key, default)
    if isinstance(value, tuple) and len(set(value)) == 1:
        value = value[0]
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if value is not None and not is_number:
        raise BadModel(f"{_unsupported(header, key, value)}: it has to be one number for all layers")
    return value


def _unsupported(header: GgufHeader, key: str, value: object) -> str:
    shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:80]}..."
    return f"{header.path}: {header.architecture}.{key} is {shown}, which midfill does not support"
