"""Writes hybrid models as GGUF files: a tiny LFM2 with random weights; checkpoints, as llama.cpp's converter does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.inference.tiny_gguf import Fields, tokenizer_fields, write_file

HIDDEN, INNER, HEADS, KV_HEADS = 64, 128, 4, 2
KEPT = 3  # of a convolution
LAYERS = ("conv", "attention", "conv", "attention")


def write_hybrid(path: Path, tokenizer: Path) -> Path:
    """A GGUF file of the architecture lfm2, with the tokenizer of a tokenizer.json."""
    fields = tokenizer_fields(tokenizer)
    vocabulary = len(fields["tokenizer.ggml.tokens"])
    sizes = {
        "block_count": len(LAYERS),
        "context_length": 8192,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "vocab_size": vocabulary,
        "attention.head_count": HEADS,
        "attention.head_count_kv": [KV_HEADS if layer == "attention" else 0 for layer in LAYERS],
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
        "shortconv.l_cache": KEPT,
    }
    shapes = {"token_embd": (vocabulary, HIDDEN), "token_embd_norm": (HIDDEN,)}
    for number, layer in enumerate(LAYERS):
        mixing = (
            {"shortconv.conv": (HIDDEN, KEPT), "shortconv.in_proj": (3 * HIDDEN, HIDDEN), "shortconv.out_proj": (HIDDEN,) * 2}
            if layer == "conv"
            else {
                "attn_q": (HIDDEN, HIDDEN),
                "attn_output": (HIDDEN, HIDDEN),
                **dict.fromkeys(("attn_k", "attn_v"), (HIDDEN // HEADS * KV_HEADS, HIDDEN)),
                **dict.fromkeys(("attn_q_norm", "attn_k_norm"), (HIDDEN // HEADS,)),
            }
        )
        widths = {"ffn_gate": (INNER, HIDDEN), "ffn_up": (INNER, HIDDEN), "ffn_down": (HIDDEN, INNER)}
        norms = dict.fromkeys(("attn_norm", "ffn_norm"), (HIDDEN,))
        shapes |= {f"blk.{number}.{name}": shape for name, shape in {**mixing, **widths, **norms}.items()}
    draw = np.random.default_rng(0)
    tensors = {
        f"{name}.weight": (
            np.ones(shape, np.float32)
            if "norm" in name
            else draw.normal(0, 0.5, shape).astype(np.float32) / shape[-1] ** (name != "token_embd" and 0.5),
            "F32",
        )
        for name, shape in shapes.items()
    }
    named = {"general.architecture": "lfm2"} | {f"lfm2.{key}": value for key, value in sizes.items()}
    return write_file(path, named | fields, tensors)


def convert(path: Path, checkpoint: Path, kind: str = "F32", changes: Mapping[str, Any] | None = None) -> Path:
    """An LFM2 or Qwen3.5 checkpoint as a GGUF file, its matrices of the type `kind`; `changes`: of the fields."""
    config = json.loads((checkpoint / "config.json").read_text())
    architecture = "lfm2" if config["model_type"] == "lfm2" else "qwen35"
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, architecture.upper()), config["num_hidden_layers"])
    tensors = {}
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        changed, values = name, tensor.float()
        if architecture == "qwen35":
            changed, values = _converted(name, values, config)
        stored = names.get_name(changed, (".weight", ".bias"))
        assert stored is not None, name
        values = values.squeeze(1) if "conv." in name or "conv1d" in name else values
        is_matrix = values.dim() == 2 and "conv1d" not in stored and ".conv." not in stored
        tensors[stored] = (values.contiguous().numpy(), kind if is_matrix else "F32")
    sizes = _lfm2_sizes(config) if architecture == "lfm2" else _qwen35_sizes(config)
    shared = {
        "block_count": config["num_hidden_layers"],
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "attention.head_count": config["num_attention_heads"],
        "rope.freq_base": float(config["rope_parameters"]["rope_theta"]),
    }
    fields = {f"{architecture}.{key}": value for key, value in {**shared, **sizes}.items()}
    fields |= {"general.architecture": architecture, **tokenizer_fields(checkpoint / "tokenizer.json")}
    return write_file(path, fields, tensors, changes)


def _lfm2_sizes(config: Mapping[str, Any]) -> Fields:
    heads = config["num_key_value_heads"]
    width = int(2 * config["intermediate_size"] / 3)
    return {
        "feed_forward_length": -(-width // config["block_multiple_of"]) * config["block_multiple_of"],
        "attention.head_count_kv": [heads if kind == "full_attention" else 0 for kind in config["layer_types"]],
        "attention.layer_norm_rms_epsilon": config["norm_eps"],
        "shortconv.l_cache": config["conv_L_cache"],
        "vocab_size": config["vocab_size"],
    }


def _qwen35_sizes(config: Mapping[str, Any]) -> Fields:
    heads = config["linear_num_value_heads"]
    return {
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.key_length": config["head_dim"],
        "attention.value_length": config["head_dim"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "rope.dimension_count": int(config["head_dim"] * config["rope_parameters"]["partial_rotary_factor"]),
        "rope.dimension_sections": [11, 11, 10, 0],
        "full_attention_interval": 4,
        "ssm.conv_kernel": config["linear_conv_kernel_dim"],
        "ssm.state_size": config["linear_key_head_dim"],
        "ssm.group_count": config["linear_num_key_heads"],
        "ssm.time_step_rank": heads,
        "ssm.inner_size": config["linear_value_head_dim"] * heads,
    }


def _converted(name: str, tensor: Tensor, config: Mapping[str, Any]) -> tuple[str, Tensor]:
    """Value heads in tiles instead of groups, norms that begin at 1, decays without a logarithm."""
    groups, width = config["linear_num_key_heads"], config["linear_value_head_dim"]
    heads = config["linear_num_value_heads"]
    keys = 2 * groups * config["linear_key_head_dim"]

    def tiled(rows: Tensor, size: int) -> Tensor:
        return rows.reshape(groups, heads // groups, size, *rows.shape[1:]).transpose(0, 1).reshape(rows.shape)

    if name.endswith("A_log"):
        return name, tiled(-tensor.exp(), 1)
    if name.endswith("dt_bias"):
        return name.replace("dt_bias", "dt_proj.bias"), tiled(tensor, 1)
    if "conv1d" in name or "in_proj_qkv" in name:
        return name, torch.cat([tensor[:keys], tiled(tensor[keys:], width)])
    if "in_proj_z" in name:
        return name, tiled(tensor, width)
    if "in_proj_a" in name or "in_proj_b" in name:
        return name, tiled(tensor, 1)
    if "linear_attn.out_proj" in name:
        return name, tiled(tensor.T.contiguous(), width).T
    return name, tensor + 1 if name.endswith("norm.weight") and "linear_attn" not in name else tensor
