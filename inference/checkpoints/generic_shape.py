"""Shapes: reads a model's shape and what its layers keep from its config.json, of any model that transformers runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from inference.checkpoints.architecture import CHANGING_ROPE, SUPPORTED_TYPES, ModelShape, positive, read_architecture
from inference.checkpoints.kernel_shape import STORED_OTHERWISE, read_kernel_shape
from protocol.errors import BadModel, bad_model
from protocol.installation import needing_torch

POSITION_NAMES = ("max_position_embeddings", "max_seq_len", "seq_length")
MOST_LAYERS = 4096
UNBOUNDED_POSITIONS = 2048  # training length of models without a bound in their config (ALiBi)

KeptKind = Literal["attention", "state", "attention and state", "latent", "nothing"]
"""What a layer keeps of earlier tokens: keys and values, a recurrent or convolutional state, both, keys and values
compressed to one vector (multi-head latent attention), or nothing."""

_KINDS: Mapping[str, KeptKind] = {
    "full_attention": "attention",
    "sliding_attention": "attention",  # only the mask differs: workspaces hold all tokens
    "chunked_attention": "attention",
    "conv": "state",
    "linear_attention": "state",
    "hybrid": "attention and state",
    "hybrid_sliding": "attention and state",
    "dummy": "nothing",  # experts alone, or another layer's keys and values
}
INDEX_ALONE = (1, 32)
"""Heads and head dimension of a model without attention, for what its pages take in the store's index."""
OWN_STATES = ("minimax", "recurrent_gemma", "rwkv", "xlstm")
"""Types whose modules keep their states to themselves, so that no snapshot of them can be taken."""


def read_shape(config: Mapping[str, Any], where: str) -> ModelShape:
    """An `Architecture` if a decoder of ours runs the model that the config describes, else the shape for transformers.

    Raises BadModel, naming `where`, if neither runs it.
    """
    is_ours = config.get("model_type") in SUPPORTED_TYPES
    return read_architecture(config, where) if is_ours else read_generic_shape(config, where)


def read_generic_shape(config: Mapping[str, Any], where: str) -> ModelShape:
    """The shape that a parsed config.json describes; BadModel, naming `where`, if transformers cannot run it here.

    The KV of a token is an estimate; its real size is known after a forward. Imports transformers.
    """
    with bad_model(f"transformers refuses {where}"):
        return _read_generic_shape(config, where)


def _read_generic_shape(config: Mapping[str, Any], where: str) -> ModelShape:
    with needing_torch(where):
        from transformers import CONFIG_MAPPING

    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise BadModel(f"{where}: neither midfill nor transformers supports models of type {model_type!r}")
    _check_depth(config, where)
    known = CONFIG_MAPPING[model_type].from_dict(dict(config))
    _, model_class = auto_class(known, where)
    text = known.get_text_config(decoder=True)
    kinds = layer_kinds(text, where, is_stateful=getattr(model_class, "_is_stateful", False))
    _refuse_kinds(kinds, model_type, where)
    kv_heads, head_dim = _kv_of_a_layer(text, kinds, where)
    recurrent = sum("state" in kind for kind in kinds)
    convolved_values, recurrent_values = _values_of_a_state(text)
    shape = ModelShape(
        model_type=model_type,
        layers=len(kinds),
        recurrent_layers=recurrent,
        convolved_values=recurrent * convolved_values,
        recurrent_values=recurrent * recurrent_values,
        kv_layers=max(1, sum("attention" in kind for kind in kinds)),  # an index alone takes about as much
        kv_heads=kv_heads,
        head_dim=head_dim,
        max_positions=_max_positions(text, where),
    )
    return read_kernel_shape(text, shape, is_gguf=config.get(STORED_OTHERWISE) is True) or shape


def _check_depth(config: Mapping[str, Any], where: str) -> None:
    """Refuse numbers of layers that no model has: transformers would make lists of that length."""
    for key, value in config.items():
        if isinstance(value, int) and value > MOST_LAYERS and "layer" in key:
            raise BadModel(f"{where}: {key} is {value}, and at most {MOST_LAYERS} are plausible")
        if isinstance(value, Mapping):
            _check_depth(value, where)


def auto_class(config: Any, where: str) -> tuple[Any, Any]:
    """transformers' loader of models that run text, with images or without, and the class that it loads here.

    BadModel, naming `where`, if there is none for the config.
    """
    import transformers as t

    if type(config) in t.MODEL_FOR_CAUSAL_LM_MAPPING:
        return t.AutoModelForCausalLM, t.MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    if type(config) in t.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING and not config.is_encoder_decoder:
        return t.AutoModelForImageTextToText, t.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(config)]
    raise BadModel(f"{where}: models of type {config.model_type!r} are not causal language models")


def layer_kinds(config: Any, where: str, *, is_stateful: bool) -> tuple[KeptKind, ...]:
    """The cache of each layer, by the transformers config of a text model; BadModel, naming `where`, if it is unknown.

    `is_stateful`: whether the model's class may keep a state; without a list of its layers, all of them do.
    """
    from transformers.cache_utils import get_layer_types_and_kwargs

    layers = _optional_number(config, "num_hidden_layers", where)
    if is_stateful and not getattr(config, "layer_types", None):
        state: KeptKind = "state"
        return (state,) * layers
    names, _ = get_layer_types_and_kwargs(config)
    for name in names:
        if name not in _KINDS:
            raise BadModel(f"{where}: layers of the kind {name!r} keep more than keys and values: choose another model")
    has_latent = any(getattr(layer, "kv_lora_rank", None) for layer in config.per_layer_config)
    return tuple("latent" if has_latent and _KINDS[name] == "attention" else _KINDS[name] for name in names)


def _refuse_kinds(kinds: tuple[KeptKind, ...], model_type: str, where: str) -> None:
    """BadModel for a model whose layers keep what midfill's workspaces cannot hold."""
    models = f"{where}: models of type {model_type!r}"
    if model_type in OWN_STATES:
        raise BadModel(
            f"{models} keep a state that transformers does not give out, so midfill cannot reuse it: choose another "
            "model, or run it in llama-server (the setting engine)"
        )
    if "latent" in kinds:
        raise BadModel(
            f"{models} keep keys and values compressed (multi-head latent attention), which midfill cannot hold: "
            "choose another model, or run it in llama-server (the setting engine)"
        )


def _kv_of_a_layer(config: Any, kinds: tuple[KeptKind, ...], where: str) -> tuple[int, int]:
    """Heads and head dimension of the keys and values, the same in every layer that keeps some; BadModel otherwise."""
    if not any("attention" in kind for kind in kinds):
        return INDEX_ALONE
    layers = [layer for layer, kind in zip(config.per_layer_config, kinds, strict=True) if "attention" in kind]
    shapes = {(kv_heads, dim) for layer in layers for kv_heads, *dims in [_kv_shape(layer, where)] for dim in dims}
    if len(shapes) != 1:
        told = " and ".join(f"{kv_heads} heads of {dim} numbers" for kv_heads, dim in sorted(shapes))
        raise BadModel(f"{where}: keys and values do not have one shape ({told}), as midfill needs: choose another model")
    ((kv_heads, head_dim),) = shapes
    return kv_heads, head_dim


def _kv_shape(config: Any, where: str) -> tuple[int, int, int]:
    """Heads of keys and values in one layer, the numbers of a key in a head, and those of a value."""
    heads = _optional_number(config, "num_attention_heads", where)
    kv_heads = 1 if getattr(config, "multi_query", False) else getattr(config, "num_key_value_heads", None)
    keys = getattr(config, "head_dim", None) or _optional_number(config, "hidden_size", where) // heads
    values = getattr(config, "v_head_dim", None) or keys
    sizes = {"num_key_value_heads": kv_heads or heads, "head_dim": keys, "v_head_dim": values}
    kv_heads, keys, values = (positive(value, name, where) for name, value in sizes.items())
    return kv_heads, keys, values


def _values_of_a_state(config: Any) -> tuple[int, int]:
    """Numbers in the state of a layer: of its convolution, and of its recurrence.

    Of a kind of layer without a name here they are 0 until they are measured, when the model is loaded.
    """

    def number(*names: str) -> int:
        values = (getattr(config, name, None) for name in names)
        return next((value for value in values if isinstance(value, int)), 0)

    if heads := number("linear_num_value_heads"):  # the gated delta rule
        keys, values = number("linear_key_head_dim"), number("linear_value_head_dim")
        channels = 2 * number("linear_num_key_heads") * keys + heads * values
        return channels * number("linear_conv_kernel_dim"), heads * keys * values
    width = number("mamba_d_conv", "conv_kernel")
    size = number("mamba_d_state", "ssm_state_size", "state_size")
    if heads := number("mamba_n_heads", "mamba_num_heads", "num_heads"):  # Mamba 2
        inner = heads * number("mamba_d_head", "mamba_head_dim", "head_dim")
        return (inner + 2 * number("mamba_n_groups", "n_groups") * size) * width, inner * size
    if size:  # Mamba 1
        inner = number("mamba_expand", "expand") * number("hidden_size")
        return inner * width, inner * size
    return number("conv_L_cache") * number("hidden_size"), 0  # a short convolution


def _max_positions(config: Any, where: str) -> int:
    """Positions that the model was trained for, and for which RoPE stays the same."""
    names = [name for name in POSITION_NAMES if getattr(config, name, None)]
    positions = _optional_number(config, names[0], where) if names else UNBOUNDED_POSITIONS
    told = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    for rope in (told, *(inner for inner in told.values() if isinstance(inner, Mapping))):  # some differ between layers
        if rope.get("rope_type", rope.get("type")) in CHANGING_ROPE:
            original = rope.get("original_max_position_embeddings")
            original = original or getattr(config, "original_max_position_embeddings", None)
            positions = min(positions, int(original or positions))
    return positions


def _optional_number(config: Any, name: str, where: str) -> int:
    """A field of a transformers config, which maps each architecture's own names."""
    return positive(getattr(config, name, None), name, where)
