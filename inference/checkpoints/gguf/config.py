"""Configs of GGUF files: describes the model in a header as its config.json would, and refuses what it cannot."""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from inference.checkpoints.architecture import DIVIDED
from inference.checkpoints.gguf.metadata import GgufHeader, midfill_notes
from inference.checkpoints.weights import StoredTensor
from protocol.errors import BadModel, bad_model
from protocol.installation import needing_torch

OURS = ("llama", "qwen2", "qwen3", "granite")
"""The architectures of llama.cpp that our decoder runs; its `llama` includes Mistral."""

_ROPE = tuple(f"rope.scaling.{key}" for key in ("type", "factor", "original_context_length"))
_READ = frozenset(
    {
        *("block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size"),
        *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
        *("attention.layer_norm_rms_epsilon", "attention.scale", "attention.sliding_window"),
        *("rope.dimension_count", "rope.freq_base", "rope.scale_linear", *_ROPE),
    }
)
"""Fields that our decoder reads."""
_GRANITE: Mapping[str, str] = {
    "attention.scale": "attention_multiplier",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "logit_scale": "logits_scaling",
}
"""Factors of Granite, and their names in a config.json; llama.cpp means by 0 what it does without them."""
_IDLE = frozenset({"rope.scaling.finetuned", "tensor_data_layout"})
"""Fields that change nothing, whatever their value."""

# Other keys may have these values, and 0, which means to llama.cpp what their absence does. An unknown key is refused:
# it may change what a layer computes.
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "attention.causal": (True,),
    "embedding_scale": (1,),
    "residual_scale": (1,),
    "logit_scale": (1,),
    "expert_group_count": (1,),
    "expert_group_used_count": (1,),
    "expert_weights_scale": (1,),
    "interleave_moe_layer_step": (1,),
    "rope.scaling.attn_factor": (1,),
    "rope.scaling.yarn_attn_factor": (1,),
    "rope.scaling.yarn_beta_fast": (32,),
    "rope.scaling.yarn_beta_slow": (1,),
    "rope.scaling.yarn_ext_factor": (1, -1),
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
    return config | {"midfill": midfill_notes(header)}


def _our_config(parts: Sequence[GgufHeader]) -> dict[str, Any]:
    header, shared = parts[0], shared_config(parts, _REQUIRED)
    heads, hidden = shared["num_attention_heads"], shared["hidden_size"]
    head_dim = number_of(header, "attention.key_length", hidden // heads if heads else None)
    scales = _granite_scales(header, head_dim) if header.architecture == "granite" else {}
    _check_attention(header, head_dim, any_scale=bool(scales))
    check_keys(header, {*_READ, *_GRANITE} if scales else _READ)
    window = number_of(header, "attention.sliding_window")
    return shared | {
        "model_type": header.architecture,
        "num_key_value_heads": number_of(header, "attention.head_count_kv"),
        "head_dim": head_dim,
        "rms_norm_eps": number_of(header, "attention.layer_norm_rms_epsilon"),
        "use_sliding_window": bool(window),
        "sliding_window": window,
        "rope_parameters": _rope(parts, head_dim),
        **scales,
    }


def shared_config(parts: Sequence[GgufHeader], required: Iterable[str]) -> dict[str, Any]:
    """What files of all families say alike; BadModel if the first part lacks one of the required keys."""
    header = parts[0]
    for key in required:
        if header.of_model(key) is None:
            raise BadModel(f"{header.path} has no {header.architecture}.{key}: it is incomplete")
    return {
        "num_hidden_layers": number_of(header, "block_count"),
        "hidden_size": number_of(header, "embedding_length"),
        "intermediate_size": number_of(header, "feed_forward_length"),
        "num_attention_heads": number_of(header, "attention.head_count"),
        "vocab_size": vocabulary_of(parts),
        "max_position_embeddings": number_of(header, "context_length"),
        "tie_word_embeddings": is_tied(parts),
    }


def _granite_scales(header: GgufHeader, head_dim: Any) -> dict[str, float]:
    if header.of_model("rope.scaling.finetuned") is False:  # llama.cpp's switch for Granite without positions
        raise BadModel(unsupported(header, "rope.scaling.finetuned", value=False))
    scales = {field: number_of(header, key) or 1.0 for key, field in _GRANITE.items()}
    if not number_of(header, "attention.scale") and isinstance(head_dim, int) and head_dim > 0:
        scales["attention_multiplier"] = head_dim**-0.5
    return scales


def check_keys(header: GgufHeader, read: Collection[str]) -> None:
    """BadModel for a key of the model that is not `read`, and may change what it computes."""
    prefix = f"{header.architecture}."
    for name, value in header.metadata.items():
        key = name.removeprefix(prefix)
        if not name.startswith(prefix) or key in read or key in _IDLE or value in _NEUTRAL.get(key, ()):
            continue
        values = value if isinstance(value, tuple) else (value,)
        if key == "attention.causal" or any(values):
            raise BadModel(unsupported(header, key, value))


def _check_attention(header: GgufHeader, head_dim: Any, *, any_scale: bool) -> None:
    """Refuse heads whose values have another size than their keys, RoPE of a part of a head, and other scales."""
    if not isinstance(head_dim, int) or head_dim < 1:
        raise BadModel(unsupported(header, "attention.key_length", head_dim))
    for key in ("attention.value_length", "rope.dimension_count"):
        if number_of(header, key, head_dim) != head_dim:
            raise BadModel(f"{unsupported(header, key, header.of_model(key))}, only {head_dim}, the size of a head")
    scale = number_of(header, "attention.scale")
    if scale and not any_scale and not math.isclose(scale, head_dim**-0.5, rel_tol=1e-5):
        raise BadModel(unsupported(header, "attention.scale", scale))


def _rope(parts: Sequence[GgufHeader], head_dim: Any) -> dict[str, Any]:
    header = parts[0]
    theta = number_of(header, "rope.freq_base", 10000.0)
    factor = number_of(header, "rope.scaling.factor", number_of(header, "rope.scale_linear", 1.0))
    kind = header.of_model("rope.scaling.type", "none" if factor in (0, 1) else "linear")  # as in llama.cpp
    divisors = _rope_factors(parts, head_dim)
    if kind == "none":
        divided = {"rope_type": DIVIDED, "divisors": divisors} if divisors else {"rope_type": "default"}
        return {"rope_theta": theta, **divided}
    if kind not in ("linear", "yarn") or divisors:
        raise BadModel(unsupported(header, "rope.scaling.type", kind))
    return {
        "rope_type": kind,
        "rope_theta": theta,
        "factor": factor,
        "original_max_position_embeddings": number_of(header, "rope.scaling.original_context_length"),
    }


def _rope_factors(parts: Sequence[GgufHeader], head_dim: Any) -> list[float]:
    """The divisor of each frequency, as llama.cpp stores the RoPE scaling of Llama 3; empty if there is none."""
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
    with needing_torch(parts[0].path):
        from transformers import CONFIG_MAPPING
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
    names = {key: name for key, name in mapping[family].items() if name is not None}
    config = {
        name: list(value) if isinstance(value, tuple) else value
        for key, name in names.items()
        if (value := header.of_model(key)) is not None
    }
    config.setdefault("vocab_size", vocabulary_of(parts))
    model_type = "gemma3_text" if family == "gemma3" else family  # these files hold the text model alone
    config |= {"model_type": model_type, "tie_word_embeddings": is_tied(parts)}
    with bad_model(f"transformers refuses {header.path}"):
        known = CONFIG_MAPPING[model_type].from_dict(config)
        return config | _overlooked(parts, names, known)


# What transformers does not read of all architectures, and the names of its own fields for it.
_OVERLOOKED: Mapping[str, tuple[str, ...]] = {
    "attention.head_count_kv": ("num_key_value_heads", "num_kv_heads"),
    "attention.key_length": ("head_dim",),
    "attention.layer_norm_epsilon": ("layer_norm_epsilon", "layer_norm_eps", "norm_epsilon", "norm_eps"),
    "attention.sliding_window": ("sliding_window",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "expert_weights_norm": ("norm_topk_prob",),
    "use_parallel_residual": ("use_parallel_residual",),
}
_BY_SHAPE = frozenset({"block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size"})
"""Fields that the shapes of the tensors repeat, or that only end the context."""
_FACTORS = (_ROPE_FACTORS, "rope_factors_long.weight", "rope_factors_short.weight")


def _overlooked(parts: Sequence[GgufHeader], read: Mapping[str, str], known: Any) -> dict[str, Any]:
    """The fields that transformers does not read, by the names of its config `known`; BadModel for the rest."""
    header = parts[0]
    for name in _FACTORS:
        if _find(parts, name)[1] is not None:
            raise BadModel(f"{header.path}: the RoPE of {name} is not supported for files of {header.architecture!r}")
    found: dict[str, Any] = {}
    for key, fields in _OVERLOOKED.items():
        value, field = _number_or_flag(header, key), next((field for field in fields if hasattr(known, field)), None)
        if key not in read and value and field is not None and getattr(known, field) != value:
            found[field] = value
    by_name = {key for key, fields in _OVERLOOKED.items() if any(hasattr(known, field) for field in fields)}
    heads = getattr(known, "num_attention_heads", None) or 1
    head_dim = found.get("head_dim") or getattr(known, "head_dim", None) or getattr(known, "hidden_size", 0) // heads
    rope = getattr(known, "rope_parameters", None) or {}
    scales = any(header.of_model(key) for key in ("rope.scaling.factor", "rope.scale_linear"))
    scales = scales or header.of_model("rope.scaling.type") not in (None, "none", "linear")
    if scales or (header.of_model("rope.freq_base") is not None and "rope.freq_base" not in read):
        if any(isinstance(value, Mapping) for value in rope.values()):  # of several kinds of layers
            raise BadModel(unsupported(header, "rope.scaling.type", header.of_model("rope.scaling.type")))
        found["rope_parameters"] = {**rope, **_rope(parts, head_dim)}
    rotated = int(head_dim * (rope.get("partial_rotary_factor") or getattr(known, "partial_rotary_factor", None) or 1))
    same = {
        "attention.head_count_kv": heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "rope.dimension_count": rotated,
        "rope.freq_base_swa": 10000,
    }
    equal = {key for key, value in same.items() if number_of(header, key) == value}
    check_keys(header, {*read, *_BY_SHAPE, *by_name, *equal, "rope.freq_base", "rope.scale_linear", *_ROPE})
    return found


def _number_or_flag(header: GgufHeader, key: str) -> Any:
    value = header.of_model(key)
    return value if isinstance(value, bool) else number_of(header, key)


def _plain(family: str) -> str:
    return family.replace("-", "").replace("_", "")


def vocabulary_of(parts: Sequence[GgufHeader]) -> int:
    """The rows of the embedding; BadModel if there is none."""
    _, embedding = _find(parts, "token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise BadModel(f"{parts[0].path} has no embedding (token_embd.weight): it is no language model")
    return embedding.shape[0]


def is_tied(parts: Sequence[GgufHeader]) -> bool:
    """Whether the embedding is the head, too."""
    return _find(parts, "output.weight")[1] is None


def _find(parts: Sequence[GgufHeader], name: str) -> tuple[GgufHeader, StoredTensor | None]:
    """The tensor of this name and the part that has it; the first part and None if there is no such tensor."""
    found = ((part, part.tensors[name]) for part in parts if name in part.tensors)
    return next(found, (parts[0], None))


def number_of(header: GgufHeader, key: str, default: Any = None) -> Any:
    """A number that holds for all layers; BadModel for anything else."""
    value = header.of_model(key, default)
    if isinstance(value, tuple) and len(set(value)) == 1:
        value = value[0]
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if value is not None and not is_number:
        raise BadModel(f"{unsupported(header, key, value)}: it has to be one number for all layers")
    return value


def unsupported(header: GgufHeader, key: str, value: object) -> str:
    """What is wrong with a value of a key, for a BadModel."""
    shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:80]}..."
    return f"{header.path}: {header.architecture}.{key} is {shown}, which midfill does not support"
