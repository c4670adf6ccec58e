"""Reads the shape of a model that transformers' own modules run, and rejects unsupported models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inference.checkpoints.architecture import CHANGING_ROPE, SUPPORTED_TYPES, ModelShape, read_architecture
from protocol.errors import BadModel

POSITION_NAMES = ("max_position_embeddings", "max_seq_len", "seq_length")
UNBOUNDED_POSITIONS = 2048  # training length of models without a bound in their config (ALiBi)


def read_shape(config: Mapping[str, Any], where: str) -> ModelShape:
    """An `Architecture` if our decoder runs the model that the config describes, else the shape for transformers.

    Raises BadModel, naming `where`, if neither runs it.
    """
    is_ours = config.get("model_type") in SUPPORTED_TYPES
    return read_architecture(config, where) if is_ours else read_generic_shape(config, where)


def read_generic_shape(config: Mapping[str, Any], where: str) -> ModelShape:
    """The shape that a parsed config.json describes; BadModel, naming `where`, if transformers cannot run it here.

    The KV of a token is an estimate; its real size is known after a forward. Imports transformers.
    """
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise BadModel(f"{where}: neither midfill nor transformers supports models of type {model_type!r}")
    try:
        known = CONFIG_MAPPING[model_type].from_dict(dict(config))
    except Exception as error:  # config classes raise various errors
        raise BadModel(f"transformers refuses {where}: {error}") from error
    if type(known) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise BadModel(f"{where}: models of type {model_type!r} are not causal language models")
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(known)]
    if getattr(model_class, "_is_stateful", False) and not _has_attention_alone(known):
        raise BadModel(
            f"{where}: models of type {model_type!r} keep a state that cannot be cropped to an earlier token, "
            "so midfill cannot reuse it: choose a model with attention only"
        )
    heads = _number(known, "num_attention_heads", where)
    kv_heads = 1 if getattr(known, "multi_query", False) else getattr(known, "num_key_value_heads", None)
    return ModelShape(
        model_type=model_type,
        layers=_number(known, "num_hidden_layers", where),
        kv_heads=int(kv_heads or heads),
        head_dim=int(getattr(known, "head_dim", None) or _number(known, "hidden_size", where) // heads),
        max_positions=_max_positions(known, where),
    )


def _has_attention_alone(config: Any) -> bool:
    """Whether every layer is attention; inspects the layers, since a class with state layers may have none of them."""
    layers = getattr(config, "layer_types", None) or ()
    return len(layers) > 0 and all(str(layer).endswith("attention") and "linear" not in str(layer) for layer in layers)


def _max_positions(config: Any, where: str) -> int:
    """Positions that the model was trained for, and for which RoPE stays the same."""
    names = [name for name in POSITION_NAMES if getattr(config, name, None)]
    positions = _number(config, names[0], where) if names else UNBOUNDED_POSITIONS
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if rope.get("rope_type", rope.get("type")) in CHANGING_ROPE:
        original = rope.get("original_max_position_embeddings") or getattr(
            config, "original_max_position_embeddings", None
        )
        return min(positions, int(original or positions))
    return positions


def _number(config: Any, name: str, where: str) -> int:
    """A field of a transformers config, which maps each architecture's own names."""
    value = getattr(config, name, None)
    if not isinstance(value, int) or value < 1:
        raise BadModel(f"{where}: {name} must be a positive integer, not {value!r}")
    return value
