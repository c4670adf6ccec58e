"""Tensors of the Llama family: names and shapes that a model's files must have, compared without reading them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from inference.checkpoints.architecture import Architecture
from inference.checkpoints.weights import WeightsFile
from protocol.errors import BadModel


def check_tensors(shape: Architecture, files: Sequence[WeightsFile], path: Path) -> None:
    """BadModel, with the first tensor at fault, if one is missing or has another shape than the config implies."""
    found = {name: (file.path, tensor.shape) for file in files for name, tensor in file.tensors.items()}
    if shape.layers > len(found):
        raise BadModel(f"{path}: num_hidden_layers is {shape.layers}, and its files have {len(found)} tensors")
    for name, expected in _expected(shape):
        if name not in found:
            raise BadModel(
                f"{path}: the checkpoint has no tensor {name!r}: it is incomplete, or has another architecture"
            )
        file, actual = found[name]
        if actual != expected:
            raise BadModel(f"{file}: {name} has the shape {actual}, but its config implies {expected}")


def _expected(shape: Architecture) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes; biases may be missing."""
    hidden, queries, keys = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (shape.intermediate, hidden),
        "mlp.up_proj": (shape.intermediate, hidden),
        "mlp.down_proj": (hidden, shape.intermediate),
    }
    if shape.qk_norm:
        layer |= dict.fromkeys(("self_attn.q_norm", "self_attn.k_norm"), (shape.head_dim,))
    yield "model.embed_tokens.weight", (shape.vocabulary, hidden)
    for number in range(shape.layers):
        yield from ((f"model.layers.{number}.{name}.weight", size) for name, size in layer.items())
    yield "model.norm.weight", (hidden,)
    if not shape.tied_embeddings:
        yield "lm_head.weight", (shape.vocabulary, hidden)
