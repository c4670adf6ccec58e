"""Writes tiny checkpoints as GGUF files, by the gguf package's own writer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.torch import load_file

Fields = dict[str, Any]

KERNEL_SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1}
"""A shape that the CPU kernel runs, and whose rows are whole blocks of the types with blocks of 32."""

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_gguf(path: Path, checkpoint: Path, kind: str = "F32", changes: Mapping[str, Any] | None = None, **kinds: str) -> Path:
    """The checkpoint with its matrices in the type `kind`, or for names that contain it, that of `kinds`.

    `changes` are put over the fields; None takes a field away.
    """
    config = json.loads((checkpoint / "config.json").read_text())
    tensors = {}
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        module, _, suffix = name.rpartition(".")
        stored = their_name(module, suffix)
        values = tensor.float().numpy()
        if config["model_type"] in ("llama", "granite") and (".q_proj" in name or ".k_proj" in name):
            values = permuted(values, config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
        chosen = next((kinds[part] for part in kinds if part in stored), kind)
        tensors[stored] = (values, chosen if tensor.dim() == 2 else "F32")
    return write_file(path, model_fields(config) | tokenizer_fields(checkpoint / "tokenizer.json"), tensors, changes)


def write_file(
    path: Path, fields: Fields, tensors: Mapping[str, tuple[np.ndarray[Any, Any], str]], changes: Mapping[str, Any] | None = None
) -> Path:
    """A GGUF file with these fields and tensors; a tensor of bytes is written as blocks of its type."""
    writer = gguf.GGUFWriter(path, fields.get("general.architecture", ""))  # an empty one is not written
    for key, value in (fields | dict(changes or {})).items():
        if value is not None and key != "general.architecture":
            _add(writer, key, value)
    for name, (values, kind) in tensors.items():
        raw = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, values if values.dtype == np.uint8 else gguf.quantize(values, raw), raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def model_fields(config: Mapping[str, Any]) -> Fields:
    """What a converter writes for a config.json."""
    architecture = config["model_type"]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    fields = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "rope.dimension_count": head_dim,
        "rope.freq_base": float(config["rope_parameters"]["rope_theta"]),
    }
    if architecture == "granite":
        multiplied = {"attention": "attention.scale", "embedding": "embedding_scale", "residual": "residual_scale"}
        fields |= {key: float(config[f"{name}_multiplier"]) for name, key in multiplied.items()}
        fields["logit_scale"] = float(config["logits_scaling"])
    return {"general.architecture": architecture} | {f"{architecture}.{key}": value for key, value in fields.items()}


def tokenizer_fields(path: Path, pre: str = "qwen2") -> Fields:
    """What a converter writes for a tokenizer.json of byte-level BPE."""
    definition = json.loads(path.read_text())
    vocabulary = definition["model"]["vocab"]
    added = {token["content"]: token["id"] for token in definition["added_tokens"]}
    tokens = {id_: token for token, id_ in (vocabulary | added).items()}
    ids = range(max(tokens) + 1)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": [tokens.get(id_, f"[PAD{id_}]") for id_ in ids],
        "tokenizer.ggml.token_type": [gguf.TokenType.CONTROL if id_ in added.values() else _kind(id_ in tokens) for id_ in ids],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in definition["model"]["merges"]],
    }


def _kind(is_used: bool) -> gguf.TokenType:
    return gguf.TokenType.NORMAL if is_used else gguf.TokenType.UNUSED


def their_name(module: str, suffix: str) -> str:
    """llama.cpp's name of a tensor of the Llama family."""
    if not module.startswith("model.layers."):
        return f"{NAMES[module]}.{suffix}"
    _, _, layer, inner = module.split(".", 3)
    return f"blk.{layer}.{NAMES[inner]}.{suffix}"


def permuted(rows: np.ndarray[Any, Any], head_dim: int) -> np.ndarray[Any, Any]:
    """The rows of queries or keys as llama.cpp's architecture `llama` has them: pairs that turn together adjacent."""
    heads = rows.reshape(-1, 2, head_dim // 2, *rows.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(rows.shape)


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def read_back(file: Path, checkpoint: Path) -> tuple[Fields, dict[str, Any]]:
    """The fields and the tensors of a file."""
    whole = gguf.GGUFReader(file)
    fields = {name: field.contents() for name, field in whole.fields.items() if not name.startswith("GGUF.")}
    tensors = {tensor.name: (np.array(tensor.data), tensor.tensor_type.name) for tensor in whole.tensors}
    return fields | tokenizer_fields(checkpoint / "tokenizer.json"), tensors


def split(file: Path, folder: Path, checkpoint: Path, first: int = 5) -> list[Path]:
    """The file in two parts, as llama-gguf-split writes them: the second has tensors alone, the first so many."""
    fields, tensors = read_back(file, checkpoint)
    names = sorted(tensors)
    paths = []
    for number, part in enumerate((names[:first], names[first:])):
        path = folder / f"tiny-{number + 1:05}-of-00002.gguf"
        kept = fields if number == 0 else {}
        numbers = {"split.no": number, "split.count": 2}
        paths.append(write_file(path, kept, {name: tensors[name] for name in part}, numbers))
    return paths
