"""Attention of a few new tokens to workspaces, split over their keys, for CUDA graphs: three Triton kernels.

Torch's attention computes one token on as many blocks as there are key-value heads, two to eight, and a GPU has over a
hundred processors; with a mask it also reads all keys that could be visible. Here each block takes a part of the
visible keys of one head, and another kernel merges the parts. How many are visible, and the workspaces' addresses, are
read on the device: one graph serves every workspace and every length. The first kernel turns queries and keys, and
writes keys and values to the workspaces, which takes torch a dozen kernels.

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

KEYS = 64
"""Keys of a step of the loop; no part is smaller."""
BLOCKS = 128
"""About so many blocks compute one token: as many as a large GPU has processors."""

TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}


@dataclass(frozen=True, slots=True)
class Heads:
    """The attention of a model: how many heads of which size, and what is done to queries and keys.

    Attributes:
        size: numbers of a head.
        group: query heads that share a key.
        scale: factor of the scores.
        epsilon: of the norms of queries and keys, in models that have them.
        cosines, sines: of every position, [positions, size].
    """

    kv_heads: int
    group: int
    size: int
    scale: float
    epsilon: float
    cosines: Tensor
    sines: Tensor


@dataclass(frozen=True, slots=True)
class Places:
    """Where the rows of a forward belong: those of each sequence follow each other.

    Attributes:
        addresses: of the sequences' workspaces, int64 [at least sequences], on the device.
        starts: the position of each sequence's first token, int64 [at least sequences], on the device.
        tokens: of each sequence.
        max_tokens: capacity of every workspace.
    """

    addresses: Tensor
    starts: Tensor
    sequences: int
    tokens: int
    max_tokens: int


def attend(qkv: Tensor, q_norm: Tensor | None, k_norm: Tensor | None, heads: Heads, places: Places, layer: int) -> Tensor:
    """The causal attention of each row to what its workspace holds before it, and to itself.

    qkv: [rows, (kv_heads * group + 2 * kv_heads) * size], neither turned nor normed; q_norm, k_norm: weights [size] of
    the norms, or None -> [rows, kv_heads * group * size]. Writes the rows' keys and values to the workspaces.
    """
    rows, size, count, group = qkv.shape[0], heads.size, heads.kv_heads, heads.group
    each, splits = places.tokens * group, _splits(count, places.max_tokens)
    block_rows = min(64, max(16, triton.next_power_of_2(each)))
    head_stride = places.max_tokens * size
    values = count * head_stride
    at = 2 * values * layer
    q = torch.empty(rows, count * group * size, dtype=qkv.dtype, device=qkv.device)
    sums = torch.empty(splits, places.sequences * count, each, size, dtype=torch.float32, device=qkv.device)
    stats = torch.empty(splits, places.sequences * count, each, 2, dtype=torch.float32, device=qkv.device)
    out = torch.empty_like(q)
    dtype = TYPES[qkv.dtype]
    _place[(rows, count * (group + 2))](
        qkv, q, q_norm, k_norm, heads.cosines, heads.sines, places.addresses, places.starts,
        at, values, head_stride, places.tokens, heads.epsilon,
        HEADS=count, G=group, D=size, NORMS=q_norm is not None, DTYPE=dtype, num_warps=1,
    )  # fmt: skip
    _partial[(places.sequences * count, splits, triton.cdiv(each, block_rows))](
        q, places.addresses, places.starts, sums, stats, at, values, head_stride, places.tokens, heads.scale,
        G=group, D=size, HEADS=count, SPLITS=splits, ROWS=block_rows, KEYS=KEYS, DTYPE=dtype,
    )  # fmt: skip
    _merge[(places.sequences * count, each)](
        sums, stats, out, places.tokens, places.sequences * count, G=group, D=size, HEADS=count, SPLITS=splits
    )
    return out


def _splits(heads: int, max_tokens: int) -> int:
    """Parts of the keys: a power of two, since the merge reads them at once, and no more than there can be steps."""
    most = min(BLOCKS // min(heads, BLOCKS), -(-max_tokens // KEYS))
    return 1 << (most.bit_length() - 1)


@triton.jit(do_not_specialize=["tokens"])
def _place(  # type: ignore[no-untyped-def]
    qkv_ptr, q_ptr, q_norm_ptr, k_norm_ptr, cosines_ptr, sines_ptr, addresses_ptr, starts_ptr,
    at, values, head_stride, tokens, epsilon,
    HEADS: tl.constexpr, G: tl.constexpr, D: tl.constexpr, NORMS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """A head of a row: a query, which is turned, a key, which is turned and kept, or a value, which is kept."""
    row, head = tl.program_id(0), tl.program_id(1)
    sequence = row // tokens
    position = tl.load(starts_ptr + sequence) + row % tokens
    half = tl.arange(0, D // 2)
    base = qkv_ptr + row * (HEADS * (G + 2) * D) + head * D
    first, second = tl.load(base + half), tl.load(base + D // 2 + half)
    if head < HEADS * (G + 1):
        if NORMS:
            norm = q_norm_ptr if head < HEADS * G else k_norm_ptr
            one, two = first.to(tl.float32), second.to(tl.float32)
            factor = tl.rsqrt((tl.sum(one * one, 0) + tl.sum(two * two, 0)) / D + epsilon)
            first = (one * factor * tl.load(norm + half).to(tl.float32)).to(DTYPE)
            second = (two * factor * tl.load(norm + D // 2 + half).to(tl.float32)).to(DTYPE)
        # Rounded where torch's operators round, so that keys are those of other forwards.
        cosine = tl.load(cosines_ptr + position * D + half).to(tl.float32)
        sine = tl.load(sines_ptr + position * D + half).to(tl.float32)
        one, two = first.to(tl.float32), second.to(tl.float32)
        first = ((one * cosine).to(DTYPE).to(tl.float32) - (two * sine).to(DTYPE).to(tl.float32)).to(DTYPE)
        second = ((two * cosine).to(DTYPE).to(tl.float32) + (one * sine).to(DTYPE).to(tl.float32)).to(DTYPE)
    if head < HEADS * G:
        goal = q_ptr + (row * HEADS * G + head) * D
        tl.store(goal + half, first)
        tl.store(goal + D // 2 + half, second)
    else:
        kept = head - HEADS * G  # keys, then values
        place = at + (kept // HEADS) * values + (kept % HEADS) * head_stride + position * D
        goal = tl.load(addresses_ptr + sequence).to(tl.pointer_type(DTYPE)) + place
        tl.store(goal + half, first)
        tl.store(goal + D // 2 + half, second)


@triton.jit(do_not_specialize=["tokens"])
def _partial(  # type: ignore[no-untyped-def]
    q_ptr, addresses_ptr, starts_ptr, sums_ptr, stats_ptr, at, values, head_stride, tokens, scale,
    G: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, SPLITS: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, DTYPE: tl.constexpr,
):  # fmt: skip
    """A part's weighted sum of values, its highest score and its sum of weights, for rows of one head.

    A row is a head of the group at a token. A row that sees no key of the part gets the highest score minus infinity.
    """
    own, split, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    sequence, head = own // HEADS, own % HEADS
    start = tl.load(starts_ptr + sequence)
    base = tl.load(addresses_ptr + sequence).to(tl.pointer_type(DTYPE)) + at + head * head_stride
    base = tl.multiple_of(base, 16)
    total = start + tokens
    part = tl.cdiv(tl.cdiv(total, SPLITS), KEYS) * KEYS
    low = split * part
    high = tl.minimum(low + part, total)
    rows = block * ROWS + tl.arange(0, ROWS)
    inside = rows < tokens * G
    columns = tl.arange(0, D)
    q_at = ((sequence * tokens + rows // G) * HEADS + head) * G + rows % G
    q = tl.load(q_ptr + q_at[:, None] * D + columns[None, :], mask=inside[:, None], other=0.0)
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
    place = (split * tl.num_programs(0) + own) * tokens * G + rows
    tl.store(sums_ptr + place[:, None] * D + columns[None, :], sums, mask=inside[:, None])
    tl.store(stats_ptr + place * 2, highest, mask=inside)
    tl.store(stats_ptr + place * 2 + 1, weight, mask=inside)


@triton.jit(do_not_specialize=["tokens", "owners"])
def _merge(  # type: ignore[no-untyped-def]
    sums_ptr, stats_ptr, out_ptr, tokens, owners,
    G: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    own, row = tl.program_id(0), tl.program_id(1)
    sequence, head = own // HEADS, own % HEADS
    splits, columns = tl.arange(0, SPLITS), tl.arange(0, D)
    place = (splits * owners + own) * tokens * G + row
    highest = tl.load(stats_ptr + place * 2)
    share = tl.exp(highest - tl.max(highest, 0))
    weight = tl.sum(tl.load(stats_ptr + place * 2 + 1) * share, 0)
    sums = tl.load(sums_ptr + place[:, None] * D + columns[None, :])
    merged = tl.sum(sums * share[:, None], 0) / weight
    goal = out_ptr + (((sequence * tokens + row // G) * HEADS + head) * G + row % G) * D + columns
    tl.store(goal, merged.to(out_ptr.dtype.element_ty))
