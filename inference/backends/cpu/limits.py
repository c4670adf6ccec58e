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
        raise ValueError(f"{count} new tokens: a call takes 1 to {MAX_NEW_TOKENS}")
    if len({id(chunk.workspace) for chunk in chunks}) < len(chunks):
        raise ValueError("two chunks of one workspace: a call takes one of each")
    for chunk in chunks:
        _check_chunk(architecture, positions, chunk)


def _check_chunk(architecture: Architecture, positions: int, chunk: Chunk) -> None:
    token_ids, workspace = chunk.token_ids, chunk.workspace
    count = len(token_ids)
    if count == 0:
        raise ValueError("a chunk of 0 new tokens")
    if min(token_ids) < 0 or max(token_ids) >= architecture.vocabulary:
        raise ValueError(f"token ids from {min(token_ids)} to {max(token_ids)}: there are {architecture.vocabulary}")
    if not 0 <= chunk.wanted <= count:
        raise ValueError(f"logits of {chunk.wanted} tokens out of {count}")
    if not isinstance(workspace, KVWorkspace):
        raise TypeError(f"a {type(workspace).__name__}: the kernel runs on a KVWorkspace")
    room = min(workspace.max_tokens, positions)
    if not 0 <= chunk.start <= room - count:
        raise ValueError(f"tokens [{chunk.start}, {chunk.start + count}) of a workspace of {room}")
    shape = workspace.shape
    expected = (architecture.layers, architecture.kv_heads, architecture.head_dim)
    if (shape.num_layers, shape.num_kv_heads, shape.head_dim) != expected:
        raise ValueError(f"a workspace of shape {shape}: layers, key-value heads and head dimension are {expected}")
    if shape.dtype not in KV_DTYPES or workspace.device.type != "cpu":
        raise ValueError(f"a workspace of {shape.dtype} on {workspace.device}: it has to be float32 or bfloat16 on cpu")
