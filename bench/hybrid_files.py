"""GGUF files with random weights: of two hybrid models, and of Qwen2.5-Coder-1.5B's shape; Q4_0, embedding Q6_K.

The tokenizer is the tiny model's, filled up with unused tokens. Tokens that are not printable ASCII are improbable, so
that no completion ends before its last token.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gguf
import numpy as np
from checkpoints import SUPPRESSED, write_tokenizer
from numpy.typing import NDArray

from inference.text.tokenization import read_tokenizer

Shapes = dict[str, tuple[int, ...]]
Q4_0, Q6_K = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q6_K


@dataclass(frozen=True, slots=True)
class HybridShape:
    """The sizes of a model, and llama.cpp's names for what only its family has."""

    architecture: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    attention: tuple[int, ...]  # the layers with attention

    @property
    def fields(self) -> dict[str, Any]:
        """Of the family alone."""
        kv_heads = [self.kv_heads if layer in self.attention else 0 for layer in range(self.layers)]
        if self.architecture == "qwen2":
            return {"attention.head_count_kv": self.kv_heads}
        if self.architecture == "lfm2":
            return {"shortconv.l_cache": 3, "attention.head_count_kv": kv_heads}
        return {
            "attention.head_count_kv": self.kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "rope.dimension_count": self.head_dim // 4,
            "rope.dimension_sections": [11, 11, 10, 0],
            "full_attention_interval": 4,
            "ssm.conv_kernel": 4,
            "ssm.state_size": 128,
            "ssm.group_count": 16,
            "ssm.time_step_rank": 16,
            "ssm.inner_size": 2048,
        }

    def layer(self, number: int) -> Shapes:
        """The tensors of a layer, without their prefix; one in the way of numpy, [rows, columns]."""
        hidden, wide = self.hidden, self.heads * self.head_dim
        is_lfm2, keys = self.architecture == "lfm2", (self.kv_heads * self.head_dim, hidden)
        around: Shapes = {
            "attn_norm.weight": (hidden,),
            "post_attention_norm.weight" if self.architecture == "qwen35" else "ffn_norm.weight": (hidden,),
            **dict.fromkeys(("ffn_gate.weight", "ffn_up.weight"), (self.intermediate, hidden)),
            "ffn_down.weight": (hidden, self.intermediate),
        }
        if self.architecture == "qwen2":
            return around | {
                **dict.fromkeys(("attn_q.weight", "attn_output.weight"), (wide, hidden)),
                **dict.fromkeys(("attn_k.weight", "attn_v.weight"), keys),
                "attn_q.bias": (wide,),
                "attn_k.bias": keys[:1],
                "attn_v.bias": keys[:1],
            }
        if number in self.attention:
            return around | {
                "attn_q.weight": (wide if is_lfm2 else 2 * wide, hidden),
                **dict.fromkeys(("attn_k.weight", "attn_v.weight"), keys),
                "attn_output.weight": (hidden, wide),
                **dict.fromkeys(("attn_q_norm.weight", "attn_k_norm.weight"), (self.head_dim,)),
            }
        if is_lfm2:
            return around | {
                "shortconv.in_proj.weight": (3 * hidden, hidden),
                "shortconv.out_proj.weight": (hidden, hidden),
                "shortconv.conv.weight": (hidden, 3),
            }
        return around | {
            "attn_qkv.weight": (3 * 2048, hidden),
            "attn_gate.weight": (2048, hidden),
            **dict.fromkeys(("ssm_alpha.weight", "ssm_beta.weight"), (16, hidden)),
            "ssm_conv1d.weight": (3 * 2048, 4),
            **dict.fromkeys(("ssm_dt.bias", "ssm_a"), (16,)),
            "ssm_norm.weight": (128,),
            "ssm_out.weight": (hidden, 2048),
        }


SHAPES = {
    "LFM2-350M": HybridShape("lfm2", 16, 1024, 4608, 16, 8, 64, 65536, (2, 5, 8, 10, 12, 14)),
    "Qwen3.5-0.8B": HybridShape("qwen35", 24, 1024, 3584, 8, 2, 256, 248320, tuple(range(3, 24, 4))),
    "Qwen2.5-1.5B": HybridShape("qwen2", 28, 1536, 8960, 12, 2, 128, 151936, tuple(range(28))),
}


def write_file(name: str, path: Path) -> Path:
    """The file of the shape called `name`, the same one at every call."""
    shape, draw = SHAPES[name], np.random.default_rng(0)
    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_block_count(shape.layers)
    writer.add_context_length(32768)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_rope_freq_base(1e6)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(shape.vocabulary)
    for key, value in shape.fields.items():
        kind = gguf.GGUFValueType.ARRAY if isinstance(value, list) else gguf.GGUFValueType.UINT32
        writer.add_key_value(f"{shape.architecture}.{key}", value, kind)
    printable = _add_tokenizer(writer, shape.vocabulary)
    for tensor, size in _tensors(shape):
        if tensor == "token_embd.weight":
            writer.add_tensor(tensor, _q6_k(draw, size, np.where(printable, 1, SUPPRESSED)), raw_dtype=Q6_K)
        elif len(size) == 2 and "conv" not in tensor.split(".")[-2]:
            writer.add_tensor(tensor, _q4_0(draw, size), raw_dtype=Q4_0)
        else:
            writer.add_tensor(tensor, _small(draw, tensor, size))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _tensors(shape: HybridShape) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (shape.vocabulary, shape.hidden)
    yield "token_embd_norm.weight" if shape.architecture == "lfm2" else "output_norm.weight", (shape.hidden,)
    for number in range(shape.layers):
        yield from ((f"blk.{number}.{name}", size) for name, size in shape.layer(number).items())


def _small(draw: np.random.Generator, name: str, size: tuple[int, ...]) -> NDArray[np.float32]:
    if "norm" in name:
        return np.ones(size, np.float32)
    values = draw.normal(0, 0.5, size).astype(np.float32)
    return -np.exp(values) if name.endswith("ssm_a") else values


def _q4_0(draw: np.random.Generator, size: tuple[int, ...]) -> NDArray[np.uint8]:
    """Blocks of a float16 scale and 32 numbers; the rows have about the length 1."""
    rows, blocks = size[0], size[1] // 32
    scale = np.full((rows, blocks, 1), 1 / (4.6 * size[1] ** 0.5), np.float16).view(np.uint8).reshape(rows, blocks, 2)
    numbers = draw.integers(0, 256, (rows, blocks, 16), np.uint8)
    return np.concatenate([scale, numbers], axis=2).reshape(rows, -1)


def _q6_k(draw: np.random.Generator, size: tuple[int, ...], factors: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Blocks of 256 numbers, 16 scales of one byte, and a float16 scale, which each row has times its factor."""
    rows, blocks = size[0], size[1] // 256
    numbers = draw.integers(0, 256, (rows, blocks, 192), np.uint8)
    scales = np.full((rows, blocks, 16), 64, np.uint8)
    of_rows = (factors / (64 * 18.5 * size[1] ** 0.5)).astype(np.float16)
    last = np.repeat(of_rows[:, None], blocks, axis=1)[:, :, None].view(np.uint8)
    return np.concatenate([numbers, scales, last], axis=2).reshape(rows, -1)


def _add_tokenizer(writer: gguf.GGUFWriter, vocabulary: int) -> NDArray[np.bool_]:
    """For each token whether it is printable ASCII."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        printable = write_tokenizer(path, vocabulary)
        definition, markers = json.loads(path.read_text(encoding="utf-8")), read_tokenizer(path, "auto").markers
    added = {token["content"]: token["id"] for token in definition["added_tokens"]}
    ids = {id_: token for token, id_ in (definition["model"]["vocab"] | added).items()}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([ids[id_] for id_ in range(vocabulary)])
    kinds = (gguf.TokenType.NORMAL, gguf.TokenType.CONTROL)
    writer.add_token_types([kinds[ids[id_] in added] for id_ in range(vocabulary)])
    merges = definition["model"]["merges"]
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    writer.add_add_bos_token(False)
    writer.add_eos_token_id(min(markers.end))
    for field, id_ in (("pre", markers.prefix), ("suf", markers.suffix), ("mid", markers.middle)):
        if id_ is not None:
            writer.add_uint32(f"tokenizer.ggml.fim_{field}_token_id", id_)
    return printable.numpy()
