"""Writes small GGUF files as other programs store them: real headers, tensors of a few values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import LlamaFileType

from tests.inference.tiny_gguf import write_file

QWEN_MARKERS = (
    *("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>", "<|im_start|>", "<|im_end|>"),
)


def write_gguf(
    path: Path,
    architecture: str = "qwen2",
    markers: tuple[str, ...] = QWEN_MARKERS,
    name: str = "Test",
    split_count: int | None = None,
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = {"block_count": 2, "context_length": 512, "embedding_length": 64}
    heads = {"attention.head_count": 4, "attention.head_count_kv": 2}
    fields = {
        "general.architecture": architecture,
        "general.name": name,
        "general.file_type": int(LlamaFileType.MOSTLY_Q4_K_M),
        **{f"{architecture}.{key}": value for key, value in (sizes | heads).items()},
        "tokenizer.ggml.tokens": ["a", "b", *markers],
        "tokenizer.ggml.token_type": [1, 1] + [3] * len(markers),
        "split.count": split_count,
    }
    return write_file(path, fields, {"token_embd.weight": (np.zeros((11, 64), dtype=np.float32), "F32")})
