"""Decides which models the kernel can run; imports no torch."""

from __future__ import annotations

from inference.checkpoints.architecture import Architecture

MAX_GROUP = 32
HEAD_DIMS = (32, 64, 96, 128)


def unsupported_reason(architecture: Architecture) -> str | None:
    """Why the kernel cannot run a model of this shape; None if it can."""
    if architecture.head_dim not in HEAD_DIMS:
        return f"a head dimension of {architecture.head_dim} (supported: {', '.join(map(str, HEAD_DIMS))})"
    group = architecture.heads // architecture.kv_heads
    if group > MAX_GROUP:
        return f"{group} attention heads per key-value head: {MAX_GROUP} is the maximum"
    return None
