"""The shape of a model that transformers' own modules run, and which of its models cannot be run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inference.checkpoints.architecture import ModelShape
from protocol.errors import BadModel

CHANGING_ROPE = ("dynamic", "longrope")
POSITION_NAMES = ("max_position_embeddings", "max_seq_len", "seq_length")
UNBOUNDED_POSITIONS = 2048  # what models were trained on whose configs name no bound, since theirs is none (ALiBi)


def read_generic_shape(config: Mapping[str, Any], where: str) -> ModelShape:
    """The shape that a parsed config.json describes; BadModel, naming `where`, if transformers cannot run it here.

    The KV of a token is estimated; what it really takes is seen once the model has run. Imports transformers.
    """
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise BadModel(f"{where}: models of type {model_type!r} are known neither to midfill nor to transformers")
    try:
        known = CONFIG_MAPPING[model_type].from_dict(dict(config))
    except Exception as error:  # each config class checks its values in its own way
        raise BadModel(f"{where} is refused by transformers: {error}") from error
    if type(known) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise BadModel(f"{where}: models of type {model_type!r} generate no text from left to right")
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING[type(known)]
    if getattr(model_class, "_is_stateful", False) and not _has_attention_alone(known):
        raise BadModel(
            f"{where}: models of type {model_type!r} keep a state that cannot be cut back to an earlier token, "
            "so nothing could be reused: choose a model with attention alone"
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
    """Whether every layer attends: classes that can have layers with a state are also those of models without any."""
    layers = getattr(config, "layer_types", None) or ()
    return len(layers) > 0 and all(str(layer).endswith("attention") and "linear" not in str(layer) for layer in layers)


def _max_positions(config: Any, where: str) -> int:
    """Positions up to which the model is what it was trained to be, and RoPE is one and the same."""
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
    """A field of a transformers config, which knows each architecture's own name for it."""
    value = getattr(config, name, None)
    if not isinstance(value, int) or value < 1:
        raise BadModel(f"{where}: {name} is {value!r}, and has to be a positive whole number")
    return value
