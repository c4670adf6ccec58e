"""Writes small GGUF files as other programs store them: real headers, tensors of a few values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter, LlamaFileType

QWEN_MARKERS = (
    *("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>", "<|im_start|>", "<|im_end|>"),
)


def write_gguf(
    path: Path,
    architecture: str = "qwen2",
    markers: tuple[str, ...] = QWEN_MARKERS,
    name: str = "Test",
    split_count: int = 1,
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = GGUFWriter(path, architecture)
    writer.add_name(name)
    writer.add_file_type(LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_block_count(2)
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_token_list(["a", "b", *markers])
    writer.add_token_types([1, 1] + [3] * len(markers))
    if split_count != 1:
        writer.add_uint16("split.count", split_count)
    writer.add_tensor("token_embd.weight", np.zeros((11, 64), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
