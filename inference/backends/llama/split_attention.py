"""Attention of a few new tokens to a workspace, split over its keys, for CUDA graphs: three Triton kernels.

Torch's attention computes one token on as many blocks as there are key-value heads, two to eight, and a GPU has over a
hundred processors; with a mask it also reads all keys that could be visible. Here each block takes a part of the
visible keys of one head, and a second kernel merges the parts. How many are visible, and the workspace's address, are
read on the device: one graph serves every workspace and every length.

Only imported where Triton is installed. All tensors are of one dtype but for addresses, positions and the partial sums.
"""

# mypy: disable-error-code="untyped-decorator"
# ruff: noqa: N803 -- Triton's compile-time constants are in capitals

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from inference.checkpoints.architecture import Architecture

KEYS = 64
"""Keys of a step of the loop; no part is smaller."""
BLOCKS = 128
"""About so many blocks compute one token: as many as a large GPU has processors."""

_TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


def is_supported(architecture: Architecture, dtype: torch.dtype) -> bool:
    """Whether the kernels compute heads of this size: a power of two, of at least 16 numbers, for tl.dot."""
    size = architecture.head_dim
    return dtype in _TYPES and size >= 16 and size & (size - 1) == 0


@dataclass(frozen=True, slots=True)
class SplitSpan:
    """The rows of a forward as `AttentionSpan`, for tokens of one sequence that begin where the device says.

    Attributes:
        positions: of the tokens, int64 [tokens].
        start: the first of them, int64 [1].
        address: of the workspace's buffer, int64 [1].
        max_tokens: capacity of every workspace.
    """

    rows: slice
    positions: Tensor
    start: Tensor
    address: Tensor
    max_tokens: int

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """As `SequenceSpan.attend`."""
        return attend(q, k, v, self.address, self.start, self.max_tokens, layer, scale)


def attend(q: Tensor, k: Tensor, v: Tensor, address: Tensor, start: Tensor, max_tokens: int, layer: int, scale: float) -> Tensor:
    """Write k and v [kv_heads, tokens, head_dim] to a layer of the workspace at `address`, from position `start` on.

    Returns the causal attention of q [kv_heads, group, tokens, head_dim] to them and what is before, shaped as q.
    """
    heads, group, tokens, size = q.shape
    rows, splits = tokens * group, _splits(heads, max_tokens)
    block_rows = min(64, max(16, triton.next_power_of_2(rows)))
    head_stride = max_tokens * size
    values = heads * head_stride
    at = 2 * values * layer
    sums = torch.empty(splits, heads, rows, size, dtype=torch.float32, device=q.device)
    stats = torch.empty(splits, heads, rows, 2, dtype=torch.float32, device=q.device)
    out = torch.empty(tokens, heads, group, size, dtype=q.dtype, device=q.device)
    dtype = _TYPES[q.dtype]
    _write[(heads, tokens)](k, v, address, start, at, values, head_stride, *k.stride()[:2], *v.stride()[:2], D=size, DTYPE=dtype)
    _partial[(heads, splits, triton.cdiv(rows, block_rows))](
        q, address, start, sums, stats, at, values, head_stride, *q.stride()[:3], scale,
        T=tokens, G=group, D=size, HEADS=heads, SPLITS=splits, ROWS=block_rows, KEYS=KEYS, DTYPE=dtype,
    )  # fmt: skip
    _merge[(heads, rows)](sums, stats, out, T=tokens, G=group, D=size, HEADS=heads, SPLITS=splits)
    return out.permute(1, 2, 0, 3)


def _splits(heads: int, max_tokens: int) -> int:
    """Parts of the keys: a power of two, since the merge reads them at once, and no more than there can be steps."""
    most = min(BLOCKS // min(heads, BLOCKS), -(-max_tokens // KEYS))
    return 1 << (most.bit_length() - 1)


@triton.jit
def _write(  # type: ignore[no-untyped-def]
    k_ptr, v_ptr, address_ptr, start_ptr, at, values, head_stride, k_head, k_token, v_head, v_token,
    D: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    head, token = tl.program_id(0), tl.program_id(1)
    columns = tl.arange(0, D)
    base = tl.load(address_ptr).to(tl.pointer_type(DTYPE)) + at + head * head_stride
    goal = base + (tl.load(start_ptr) + token) * D + columns
    tl.store(goal, tl.load(k_ptr + head * k_head + token * k_token + columns))
    tl.store(goal + values, tl.load(v_ptr + head * v_head + token * v_token + columns))


@triton.jit
def _partial(  # type: ignore[no-untyped-def]
    q_ptr, address_ptr, start_ptr, sums_ptr, stats_ptr, at, values, head_stride, q_head, q_group, q_token, scale,
    T: tl.constexpr, G: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, SPLITS: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """A part's weighted sum of values, its highest score and its sum of weights, for rows of one head.

    A row is a head of the group at a token. A row that sees no key of the part gets the highest score minus infinity.
    """
    head, split, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(start_ptr)
    base = tl.load(address_ptr).to(tl.pointer_type(DTYPE)) + at + head * head_stride
    base = tl.multiple_of(base, 16)
    total = start + T
    part = tl.cdiv(tl.cdiv(total, SPLITS), KEYS) * KEYS
    low = split * part
    high = tl.minimum(low + part, total)
    rows = block * ROWS + tl.arange(0, ROWS)
    inside = rows < T * G
    columns = tl.arange(0, D)
    q_at = head * q_head + (rows % G) * q_group + (rows // G) * q_token
    q = tl.load(q_ptr + q_at[:, None] + columns[None, :], mask=inside[:, None], other=0.0)
    seen_to = start + rows // G
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    weight = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, D], tl.float32)
    for first in range(low, high, KEYS):
        places = first + tl.arange(0, KEYS)
        valid = places < high
        at_key = places[:, None] * D + columns[None, :]
        keys = tl.load(base + at_key, mask=valid[:, None], other=0.0)
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(valid[None, :] & (places[None, :] <= seen_to[:, None]), scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp(scores - finite[:, None])
        fade = tl.exp(highest - finite)
        loaded = tl.load(base + values + at_key, mask=valid[:, None], other=0.0)
        sums = sums * fade[:, None] + tl.dot(weights.to(loaded.dtype), loaded, input_precision="ieee")
        weight = weight * fade + tl.sum(weights, 1)
        highest = higher
    place = (split * HEADS + head) * T * G + rows
    tl.store(sums_ptr + place[:, None] * D + columns[None, :], sums, mask=inside[:, None])
    tl.store(stats_ptr + place * 2, highest, mask=inside)
    tl.store(stats_ptr + place * 2 + 1, weight, mask=inside)


@triton.jit
def _merge(  # type: ignore[no-untyped-def]
    sums_ptr, stats_ptr, out_ptr,
    T: tl.constexpr, G: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    head, row = tl.program_id(0), tl.program_id(1)
    splits, columns = tl.arange(0, SPLITS), tl.arange(0, D)
    place = (splits * HEADS + head) * T * G + row
    highest = tl.load(stats_ptr + place * 2)
    share = tl.exp(highest - tl.max(highest, 0))
    weight = tl.sum(tl.load(stats_ptr + place * 2 + 1) * share, 0)
    sums = tl.load(sums_ptr + place[:, None] * D + columns[None, :])
    merged = tl.sum(sums * share[:, None], 0) / weight
    goal = out_ptr + ((row // G) * HEADS + head) * G * D + (row % G) * D + columns
    tl.store(goal, merged.to(out_ptr.dtype.element_ty))
