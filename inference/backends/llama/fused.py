"""The decoder's short forwards in less than half of torch's kernels, for CUDA graphs.

A GPU computes one token in hundreds of kernels that last two microseconds each, most of which only move what another
has computed. Here each layer is four products, and six kernels of Triton between them.

Only imported where Triton is installed.
"""

# mypy: disable-error-code="untyped-decorator"
# ruff: noqa: N803 -- Triton's compile-time constants are in capitals

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
import triton
import triton.language as tl
from torch import Tensor

from inference.backends.llama.decoder import Decoder
from inference.backends.llama.split_attention import TYPES, Heads, Places, attend
from inference.checkpoints.architecture import Architecture

COLUMNS = 1024
"""Of a gated layer that a block computes."""


def is_supported(architecture: Architecture, dtype: torch.dtype) -> bool:
    """Whether the kernels compute such heads: all of it turned, and of a power of two, of at least 16 numbers, for tl.dot."""
    size = architecture.head_dim
    return dtype in TYPES and size >= 16 and size & (size - 1) == 0 and architecture.turned == size


def hidden_of(decoder: Decoder, token_ids: Tensor, places: Places) -> Tensor:
    """As `Decoder.hidden_of`, for token ids [sequences * tokens] of the workspaces that `places` says."""
    shape, weights = decoder.architecture, decoder.weights
    group = shape.heads // shape.kv_heads
    heads = Heads(shape.kv_heads, group, shape.head_dim, shape.attention_scale, shape.norm_epsilon, *decoder.tables)
    x = F.embedding(token_ids, weights.embedding)
    if shape.embedding_scale != 1:
        x = x * shape.embedding_scale
    added: Tensor | None = None
    for index, layer in enumerate(weights.layers):
        normed = add_and_norm(x, added, layer.attention_norm, shape.residual_scale, shape.norm_epsilon)
        qkv = F.linear(normed, layer.qkv, layer.qkv_bias)
        attended = attend(qkv, layer.q_norm, layer.k_norm, heads, places, index)
        added = F.linear(attended, layer.attention_out, layer.attention_out_bias)
        normed = add_and_norm(x, added, layer.mlp_norm, shape.residual_scale, shape.norm_epsilon)
        gated = gate(F.linear(normed, layer.gate_up, layer.gate_up_bias))
        added = F.linear(gated, layer.down, layer.down_bias)
    assert added is not None, "the decoder has no layers"
    return torch.add(x, added, alpha=shape.residual_scale)


def add_and_norm(x: Tensor, added: Tensor | None, weight: Tensor, scale: float, epsilon: float) -> Tensor:
    """Add `scale * added` to x [rows, hidden], in place, and return its RMS norm times `weight` [hidden]."""
    rows, hidden = x.shape
    normed = torch.empty_like(x)
    block = triton.next_power_of_2(hidden)
    _add_and_norm[(rows,)](
        x,
        added,
        weight,
        normed,
        scale,
        epsilon,
        HIDDEN=hidden,
        BLOCK=block,
        ADDS=added is not None,
        num_warps=min(8, block // 256 or 1),
    )
    return normed


def gate(gate_up: Tensor) -> Tensor:
    """SiLU of the first half of each row [rows, 2 * intermediate], times the second -> [rows, intermediate]."""
    rows, intermediate = gate_up.shape[0], gate_up.shape[1] // 2
    gated = torch.empty(rows, intermediate, dtype=gate_up.dtype, device=gate_up.device)
    _gate[(rows, triton.cdiv(intermediate, COLUMNS))](gate_up, gated, WIDTH=intermediate, BLOCK=COLUMNS)
    return gated


@triton.jit
def _add_and_norm(  # type: ignore[no-untyped-def]
    x_ptr, added_ptr, weight_ptr, normed_ptr, scale, epsilon,
    HIDDEN: tl.constexpr, BLOCK: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, BLOCK)
    inside = columns < HIDDEN
    places = tl.program_id(0) * HIDDEN + columns
    x = tl.load(x_ptr + places, mask=inside, other=0.0)
    if ADDS:
        added = tl.load(added_ptr + places, mask=inside, other=0.0).to(tl.float32)
        x = (x.to(tl.float32) + added * scale).to(x_ptr.dtype.element_ty)
        tl.store(x_ptr + places, x, mask=inside)
    x = x.to(tl.float32)
    factor = tl.rsqrt(tl.sum(x * x, 0) / HIDDEN + epsilon)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(normed_ptr + places, (x * factor * weight).to(normed_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _gate(gate_up_ptr, gated_ptr, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, columns = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < WIDTH
    gate = tl.load(gate_up_ptr + row * 2 * WIDTH + columns, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + row * 2 * WIDTH + WIDTH + columns, mask=inside, other=0.0).to(tl.float32)
    dtype = gated_ptr.dtype.element_ty
    opened = (gate / (1 + tl.exp(-gate))).to(dtype).to(tl.float32)  # rounded as torch does
    tl.store(gated_ptr + row * WIDTH + columns, (opened * up).to(dtype), mask=inside)
