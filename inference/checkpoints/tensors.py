"""Tensors of the models that our decoders run: names and shapes that files must have, compared without reading them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from inference.checkpoints.architecture import Architecture, LayerKind
from inference.checkpoints.weights import WeightsFile
from protocol.errors import BadModel

_LFM2: Mapping[str, str] = {
    "model.norm": "model.embedding_norm",
    "input_layernorm": "operator_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
    "self_attn.o_proj": "self_attn.out_proj",
    "self_attn.q_norm": "self_attn.q_layernorm",
    "self_attn.k_norm": "self_attn.k_layernorm",
}
"""LFM2's names of what the Llama family has too."""


def stored_name(shape: Architecture, name: str) -> str:
    """The name in the family's safetensors files of a tensor that we call as the Llama family does."""
    if shape.model_type == "qwen3_5":  # the text part of a model that sees
        return name.replace("model.", "model.language_model.", 1)
    if shape.model_type == "lfm2":
        module, _, suffix = name.rpartition(".")
        head, inner = module.split(".", 3)[:3], module.split(".", 3)[3:]
        parts = [*head, *(_LFM2.get(part, part) for part in inner)] if inner else [_LFM2.get(module, module)]
        return ".".join([*parts, suffix])
    return name


def check_tensors(shape: Architecture, files: Sequence[WeightsFile], path: Path, *, is_gguf: bool = False) -> None:
    """BadModel, with the first tensor at fault, if one is missing or has another shape than the config implies."""
    found = {name: (file.path, tensor.shape) for file in files for name, tensor in file.tensors.items()}
    if shape.layers > len(found):
        raise BadModel(f"{path}: num_hidden_layers is {shape.layers}, and its files have {len(found)} tensors")
    for ours, expected in _expected(shape, is_gguf=is_gguf):
        name = ours if is_gguf else stored_name(shape, ours)
        if name not in found:
            raise BadModel(f"{path}: the checkpoint has no tensor {name!r}: it is incomplete, or has another architecture")
        file, actual = found[name]
        if actual != expected:
            raise BadModel(f"{file}: {name} has the shape {actual}, but its config implies {expected}")


def _expected(shape: Architecture, *, is_gguf: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes; biases may be missing."""
    yield "model.embed_tokens.weight", (shape.vocabulary, shape.hidden)
    for number in range(shape.layers):
        layer = {**_around(shape), **_mixing(shape, shape.kind_of(number), is_gguf=is_gguf)}
        yield from ((f"model.layers.{number}.{name}", size) for name, size in layer.items())
    yield "model.norm.weight", (shape.hidden,)
    if not shape.tied_embeddings:
        yield "lm_head.weight", (shape.vocabulary, shape.hidden)


def _around(shape: Architecture) -> dict[str, tuple[int, ...]]:
    """What every layer has."""
    return {
        "input_layernorm.weight": (shape.hidden,),
        "post_attention_layernorm.weight": (shape.hidden,),
        "mlp.gate_proj.weight": (shape.intermediate, shape.hidden),
        "mlp.up_proj.weight": (shape.intermediate, shape.hidden),
        "mlp.down_proj.weight": (shape.hidden, shape.intermediate),
    }


def _mixing(shape: Architecture, kind: LayerKind, *, is_gguf: bool) -> dict[str, tuple[int, ...]]:
    """What a layer of this kind has before its MLP."""
    hidden, width = shape.hidden, () if is_gguf else (1,)
    taps = (*width, shape.kept_inputs + 1)
    if kind == "convolution":
        matrices = {"conv.in_proj.weight": (3 * hidden, hidden), "conv.out_proj.weight": (hidden, hidden)}
        return {**matrices, "conv.conv.weight": (hidden, *taps)}
    if kind == "delta" and shape.delta is not None:
        rule = shape.delta
        values = rule.value_heads * rule.value_dim
        return {
            "linear_attn.in_proj_qkv.weight": (rule.channels, hidden),
            "linear_attn.in_proj_z.weight": (values, hidden),
            "linear_attn.in_proj_b.weight": (rule.value_heads, hidden),
            "linear_attn.in_proj_a.weight": (rule.value_heads, hidden),
            "linear_attn.conv1d.weight": (rule.channels, *taps),
            "linear_attn.dt_bias": (rule.value_heads,),
            f"linear_attn.{'A' if is_gguf else 'A_log'}": (rule.value_heads,),
            "linear_attn.norm.weight": (rule.value_dim,),
            "linear_attn.out_proj.weight": (hidden, values),
        }
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    norms = ("self_attn.q_norm.weight", "self_attn.k_norm.weight") if shape.qk_norm else ()
    return {
        "self_attn.q_proj.weight": (shape.query_rows, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        **dict.fromkeys(norms, (shape.head_dim,)),
    }
