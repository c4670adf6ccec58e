"""The limits of a kernel call, and the check of each call against them."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from inference.backends.chunk import Chunk
from inference.checkpoints.architecture import Architecture
from kv_store.workspace import KVWorkspace

MAX_NEW_TOKENS = 32
"""Most new tokens in one call, as in model.h."""

KV_DTYPES = (torch.float32, torch.bfloat16)


def check_call(architecture: Architecture, positions: int, chunks: Sequence[Chunk]) -> None:
    """Raise ValueError, with the value at fault, if a forward would exceed any buffer."""
    count = sum(len(chunk.token_ids) for chunk in chunks)
    if not 1 <= count <= MAX_NEW_TOKENS:
        raise ValueError(f"a call takes 1 to {MAX_NEW_TOKENS} new tokens, not {count}")
    if len({id(chunk.workspace) for chunk in chunks}) < len(chunks):
        raise ValueError("a call takes one chunk per workspace")
    for chunk in chunks:
        _check_chunk(architecture, positions, chunk)


def _check_chunk(architecture: Architecture, positions: int, chunk: Chunk) -> None:
    token_ids, workspace = chunk.token_ids, chunk.workspace
    count = len(token_ids)
    if count == 0:
        raise ValueError("a chunk needs at least one new token")
    if min(token_ids) < 0 or max(token_ids) >= architecture.vocabulary:
        raise ValueError(
            f"token ids {min(token_ids)} to {max(token_ids)} exceed the vocabulary of {architecture.vocabulary}"
        )
    if not 0 <= chunk.wanted <= count:
        raise ValueError(f"a chunk of {count} tokens cannot give {chunk.wanted} logits")
    if not isinstance(workspace, KVWorkspace):
        raise TypeError(f"the kernel needs a KVWorkspace, not a {type(workspace).__name__}")
    room = min(workspace.max_tokens, positions)
    if not 0 <= chunk.start <= room - count:
        raise ValueError(f"tokens [{chunk.start}, {chunk.start + count}) exceed a workspace of {room}")
    shape = workspace.shape
    expected = (architecture.layers, architecture.kv_heads, architecture.head_dim)
    if (shape.num_layers, shape.num_kv_heads, shape.head_dim) != expected:
        raise ValueError(
            f"the workspace has shape {shape}: expected layers, key-value heads and head dimension {expected}"
        )
    if shape.dtype not in KV_DTYPES or workspace.device.type != "cpu":
        raise ValueError(f"the workspace has {shape.dtype} on {workspace.device}: expected float32 or bfloat16 on cpu")
