"""Architectures: what midfill's own decoders need of a model, read for the Llama family from its config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from protocol.errors import BadModel

SUPPORTED_TYPES = ("llama", "qwen2", "qwen3", "mistral", "granite")
QK_NORM_TYPES = ("qwen3",)
DEFAULTS: Mapping[str, Mapping[str, int]] = {
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"num_key_value_heads": 32},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128},
}
"""What a config.json without a field means to transformers, by type, where that is no rule for all types."""
_ROPE_NUMBERS = {
    "default": (),
    "linear": ("factor",),
    "yarn": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
CHANGING_ROPE = ("dynamic", "longrope")
"""Types of RoPE that depend on the length of the prompt."""
DIVIDED = "divided"
"""The type of RoPE with a divisor for each frequency (`divisors`), as GGUF files store the scaling of Llama 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes that determine a model's memory on any backend; positions beyond `max_positions` are untrained."""

    model_type: str
    layers: int
    kv_heads: int
    head_dim: int
    max_positions: int
    kv_layers: int | None = None  # that keep KV; None for all
    recurrent_layers: int = 0  # that keep a state, beside KV or without it
    convolved_values: int = 0  # numbers in the states of all layers' convolutions, in the dtype of the model
    recurrent_values: int = 0  # numbers in the states of their recurrences, in float32

    def snapshot_bytes(self, value_bytes: int) -> int:
        """Bytes of the states of all layers after some tokens, with values of this size; 0 without any."""
        return self.convolved_values * value_bytes + self.recurrent_values * 4

    @property
    def kv_values_per_token(self) -> int:
        """Numbers in the KV of one token, over all layers."""
        return 2 * (self.kv_layers or self.layers) * self.kv_heads * self.head_dim


LayerKind = Literal["attention", "convolution", "delta"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaRule:
    """The sizes of layers with the gated delta rule.

    Attributes:
        key_heads: of queries and of keys, shared by as many value heads each.
        tiled_heads: whether value head i has the key head i % key_heads, as in GGUF files; else neighbours share one.
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    tiled_heads: bool = False

    @property
    def channels(self) -> int:
        """Of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture(ModelShape):
    """The further sizes that our decoders need: torch's for the Llama family, the CPU kernel for all.

    Attributes:
        attention_scale: factor of attention scores.
        embedding_scale: factor of the embeddings, and so of the residuals that a layer begins with.
        residual_scale: factor of what attention and MLP add to the residuals.
        logits_scale: factor of the logits.
        rotary_dim: of a head's numbers, how many RoPE turns, the first ones; 0: all.
        window: how many tokens attention sees, the newest with them; 0: all.
        gated_mlp: whether it is SwiGLU; otherwise GELU, by tanh, between two matrices.
        norm_biases: whether norms are LayerNorms with biases; otherwise RMS.
        gated_output: whether the rows of each query are followed by those of a gate of the head's output.
        norm_offset: what is added to the stored weights of norms, except in the delta rule.
        layer_kinds: of each layer; empty if all are of attention.
        kept_inputs: of a convolution, those before the newest.
        delta: the sizes of layers of the kind "delta".
    """

    hidden: int
    intermediate: int
    heads: int
    vocabulary: int
    norm_epsilon: float
    tied_embeddings: bool
    qk_norm: bool
    rope_theta: float
    rope_type: str
    attention_scale: float
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logits_scale: float = 1.0
    rotary_dim: int = 0
    window: int = 0
    gated_mlp: bool = True
    norm_biases: bool = False
    gated_output: bool = False
    norm_offset: float = 0.0
    layer_kinds: tuple[LayerKind, ...] = ()
    kept_inputs: int = 0
    delta: DeltaRule | None = None

    @property
    def turned(self) -> int:
        """How many numbers of a head RoPE turns."""
        return self.rotary_dim or self.head_dim

    @property
    def query_rows(self) -> int:
        """Rows of the queries' matrix, with the gates among them."""
        return self.heads * self.head_dim * (2 if self.gated_output else 1)

    @property
    def kernel_alone(self) -> bool:
        """Whether only the CPU kernel runs it among our decoders; elsewhere transformers' modules do."""
        return bool(self.layer_kinds) or self.norm_biases

    def kind_of(self, layer: int) -> LayerKind:
        return self.layer_kinds[layer] if self.layer_kinds else "attention"

    def state_values(self, kind: LayerKind) -> int:
        """Numbers in the state of a layer: the last inputs of its convolution, and for "delta" what it has learnt."""
        if kind == "delta" and self.delta is not None:
            rule = self.delta
            return self.kept_inputs * rule.channels + rule.value_heads * rule.key_dim * rule.value_dim
        return self.kept_inputs * self.hidden if kind == "convolution" else 0

    @property
    def kernel_snapshot_bytes(self) -> int:
        """As `snapshot_bytes`, on the CPU kernel: in float32, without a convolution's newest input."""
        return 4 * sum(map(self.state_values, self.layer_kinds))


def read_architecture(config: Mapping[str, Any], where: str) -> Architecture:
    """The architecture that a parsed config.json describes; BadModel, naming `where`, if midfill cannot run it."""
    model_type = config.get("model_type")
    if model_type not in SUPPORTED_TYPES:
        raise BadModel(f"{where}: models of type {model_type!r} are not supported: choose one of {', '.join(SUPPORTED_TYPES)}")
    config = {**DEFAULTS.get(str(model_type), {}), **config}
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise BadModel(f"{where}: the activation {activation!r} is not supported, only 'silu'")
    heads = _positive(config, "num_attention_heads", where)
    hidden = _positive(config, "hidden_size", where)
    rope = rope_settings(config)
    head_dim = _positive(config, "head_dim", where) if config.get("head_dim") else hidden // heads
    architecture = Architecture(
        model_type=str(model_type),
        layers=_positive(config, "num_hidden_layers", where),
        hidden=hidden,
        intermediate=_positive(config, "intermediate_size", where),
        heads=heads,
        kv_heads=_positive(config, "num_key_value_heads", where) if config.get("num_key_value_heads") else heads,
        head_dim=head_dim,
        vocabulary=_positive(config, "vocab_size", where),
        norm_epsilon=_number(config, "rms_norm_eps", 1e-6, where),
        max_positions=_usable_positions(config, where),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        qk_norm=model_type in QK_NORM_TYPES,
        rope_theta=_number(rope if "rope_theta" in rope else config, "rope_theta", 10000.0, where),
        rope_type=str(rope.get("rope_type", rope.get("type", "default"))),
        **(_granite_scales(config, where) if model_type == "granite" else {"attention_scale": head_dim**-0.5}),
    )
    _check_shape(architecture, where)
    _check_rope(rope, architecture, where)
    return architecture


def _granite_scales(config: Mapping[str, Any], where: str) -> dict[str, float]:
    return {
        "attention_scale": _number(config, "attention_multiplier", 1.0, where),
        "embedding_scale": _number(config, "embedding_multiplier", 1.0, where),
        "residual_scale": _number(config, "residual_multiplier", 1.0, where),
        "logits_scale": 1 / _number(config, "logits_scaling", 1.0, where),
    }


def rope_settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """`rope_parameters`, as transformers 5 writes them; `rope_scaling` in older configs."""
    settings = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return settings if isinstance(settings, Mapping) else {}


def _usable_positions(config: Mapping[str, Any], where: str) -> int:
    """Positions for which full attention equals the model's own: limited by a sliding window."""
    positions = _positive(config, "max_position_embeddings", where)
    slides = config.get("use_sliding_window", config.get("model_type") == "mistral")
    if not slides or config.get("sliding_window") in (None, 0):
        return positions
    return min(positions, _positive(config, "sliding_window", where))


def _positive(config: Mapping[str, Any], key: str, where: str) -> int:
    return positive(config.get(key), key, where)


def positive(value: Any, key: str, where: str) -> int:
    """The value of a key, if it is a positive integer; BadModel, naming `where`, otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadModel(f"{where}: {key} must be a positive integer, not {value!r}")
    return value


def _number(config: Mapping[str, Any], key: str, default: float, where: str) -> float:
    """A number above 0; `default` if there is none."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise BadModel(f"{where}: {key} must be a number above 0, not {value!r}")
    return float(value)


def _check_shape(architecture: Architecture, where: str) -> None:
    if architecture.heads % architecture.kv_heads:
        raise BadModel(f"{where}: {architecture.heads} attention heads cannot share {architecture.kv_heads} key-value heads")
    if architecture.head_dim % 2:
        raise BadModel(f"{where}: the head dimension {architecture.head_dim} is odd, but RoPE rotates pairs")


def _check_rope(rope: Mapping[str, Any], architecture: Architecture, where: str) -> None:
    kind = architecture.rope_type
    if kind in CHANGING_ROPE:
        raise BadModel(f"{where}: RoPE of type {kind!r} depends on the length of the prompt, so resident KV cannot be reused")
    if kind == DIVIDED and len(rope.get("divisors") or ()) == architecture.head_dim // 2:
        return
    if kind not in _ROPE_NUMBERS:
        raise BadModel(f"{where}: RoPE of type {kind!r} is not supported: choose one of {', '.join(_ROPE_NUMBERS)}")
    for key in _ROPE_NUMBERS[kind]:
        if _number(rope, key, 0.0, where) == 0:
            raise BadModel(f"{where}: RoPE of type {kind!r} needs {key}, which is missing")
    if rope.get("partial_rotary_factor") not in (None, 1):
        raise BadModel(f"{where}: partial_rotary_factor is {rope['partial_rotary_factor']!r}, and has to be 1")
