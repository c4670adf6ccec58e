"""Random weights made on a device, with a tokenizer that can spell what they generate."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from inference.backends.layer_weights import LayerWeights
from inference.backends.llama.weights import DecoderWeights
from inference.checkpoints.architecture import Architecture
from inference.checkpoints.checkpoint import find_checkpoint
from inference.text.tokenization import TextTokenizer
from protocol.settings import TINY_MODEL

SUPPRESSED = 0.01
"""The size, relative to other rows of the head, of those of tokens that should not be generated."""


def random_weights(
    architecture: Architecture, dtype: torch.dtype, device: torch.device, spelled: Tensor | None = None
) -> DecoderWeights:
    """Weights of about the magnitude of trained ones; `spelled` marks the tokens that are generated, bool [tokens]."""

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.empty(rows, columns, dtype=dtype, device=device).normal_(std=columns**-0.5)

    def vector(count: int, mean: float, spread: float = 0.1) -> Tensor:
        return torch.empty(count, dtype=dtype, device=device).normal_(mean, spread)

    hidden, head_dim, inner = architecture.hidden, architecture.head_dim, architecture.intermediate
    attended = architecture.heads * head_dim
    qkv = attended + 2 * architecture.kv_heads * head_dim
    has_bias = architecture.model_type == "qwen2"

    def layer() -> LayerWeights[Tensor]:
        return LayerWeights(
            attention_norm=vector(hidden, 1.0),
            qkv=matrix(qkv, hidden),
            qkv_bias=vector(qkv, 0.0) if has_bias else None,
            q_norm=vector(head_dim, 1.0) if architecture.qk_norm else None,
            k_norm=vector(head_dim, 1.0) if architecture.qk_norm else None,
            attention_out=matrix(hidden, attended),
            attention_out_bias=None,
            mlp_norm=vector(hidden, 1.0),
            gate_up=matrix(2 * inner, hidden),
            gate_up_bias=None,
            down=matrix(hidden, inner),
            down_bias=None,
        )

    embedding = matrix(architecture.vocabulary, hidden)
    head = embedding if architecture.tied_embeddings else matrix(architecture.vocabulary, hidden)
    if spelled is not None:
        silent = torch.ones(architecture.vocabulary, dtype=torch.bool)
        silent[: len(spelled)] = ~spelled
        head.mul_(torch.where(silent, SUPPRESSED, 1.0).to(device, dtype)[:, None])
    return DecoderWeights(embedding, tuple(layer() for _ in range(architecture.layers)), vector(hidden, 1.0), head)


def moved(value: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Weights with all their tensors on a device, in a dtype."""
    if isinstance(value, Tensor):
        return value.to(device, dtype)
    if isinstance(value, tuple):
        return tuple(moved(item, device, dtype) for item in value)
    if isinstance(value, DecoderWeights) and value.head is value.embedding:
        embedding = moved(value.embedding, device, dtype)
        layers, norm = moved(value.layers, device, dtype), moved(value.final_norm, device, dtype)
        return DecoderWeights(embedding, layers, norm, embedding)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: moved(getattr(value, each.name), device, dtype) for each in fields(value)})
    return value


def bytes_read(weights: DecoderWeights, kv_bytes_per_token: int, visible: int) -> int:
    """The fewest bytes that a forward of few tokens reads: all matrices once, and the KV of the visible tokens.

    Of an embedding that is no head, it reads single rows.
    """
    unread = 0 if weights.head is weights.embedding else weights.embedding.nbytes
    return weights.nbytes - unread + visible * kv_bytes_per_token


def products(architecture: Architecture) -> int:
    """Multiplications of a weight for each token, without the head's, which prefill computes for one token."""
    attended = architecture.heads * architecture.head_dim
    qkv = attended + 2 * architecture.kv_heads * architecture.head_dim
    return architecture.layers * architecture.hidden * (qkv + attended + 3 * architecture.intermediate)


@contextmanager
def tiny_model(layers: int) -> Iterator[str]:
    """The name of the model `tiny`, or that of a folder with its first layers alone, as long as the block lasts."""
    if not layers:
        yield TINY_MODEL
        return
    source = find_checkpoint(TINY_MODEL).folder
    with tempfile.TemporaryDirectory() as folder:
        for file in source.iterdir():
            (Path(folder) / file.name).symlink_to(file.resolve())
        config = json.loads((source / "config.json").read_text(encoding="utf-8"))
        (Path(folder) / "config.json").unlink()
        text = json.dumps({**config, "num_hidden_layers": layers})
        (Path(folder) / "config.json").write_text(text, encoding="utf-8")
        yield folder


def tiny_tokenizer() -> TextTokenizer:
    """The tokenizer of the model `tiny`, for models without one."""
    return find_checkpoint(TINY_MODEL).tokenizer()


def spelled_tokens(tokenizer: TextTokenizer) -> Tensor:
    """For each token, bool [tokens], whether it is ASCII text."""
    spelled = torch.zeros(tokenizer.vocabulary_size, dtype=torch.bool)
    spelled[[token_id for token_id, text in tokenizer.text_tokens().items() if text.isascii()]] = True
    return spelled
