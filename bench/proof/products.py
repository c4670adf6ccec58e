"""Products of a few rows with a layer's matrices, with the norm before and the gate or the sum behind them, in one kernel.

A candidate for `inference/backends/llama/fused.py`: three launches of a layer fewer, and no row that is written only to be
read by the next. Section 15 says whether it is faster on a card than torch's product between two kernels.

Only imported where Triton is installed.
"""

# mypy: disable-error-code="untyped-decorator"
# ruff: noqa: N803, N806, SIM108 -- Triton's compile-time constants are in capitals

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Tile:
    """What a block computes: so many outputs, in steps of so many of the inputs, by so many warps."""

    outputs: int
    inputs: int
    warps: int
    stages: int = 3


ALONE = (Tile(4, 512, 4), Tile(8, 512, 4), Tile(16, 256, 4), Tile(2, 1024, 4))
TOGETHER = (Tile(16, 128, 4, 4), Tile(16, 256, 4), Tile(32, 128, 4, 4), Tile(64, 64, 4, 4))
"""For one row, whose products are summed without tensor cores, and for up to 16."""


def product(
    x: Tensor,
    weight: Tensor,
    tile: Tile,
    *,
    bias: Tensor | None = None,
    norm: Tensor | None = None,
    epsilon: float = 0.0,
    added_to: Tensor | None = None,
    scale: float = 1.0,
    gated: bool = False,
) -> Tensor:
    """x [rows, inputs] times weight [outputs, inputs], plus bias [outputs] -> [rows, outputs].

    norm: weight [inputs] of an RMS norm of x before. gated: the result is the SiLU of the first half of the outputs times
    the second. added_to: [rows, outputs], to which `scale` times the result is added, in place.
    """
    rows, inputs = x.shape
    outputs = weight.shape[0] // 2 if gated else weight.shape[0]
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device) if added_to is None else added_to
    _product[(triton.cdiv(outputs, tile.outputs),)](
        x, norm, weight, bias, out, rows, outputs, inputs, epsilon, scale,
        ROWS=1 if rows == 1 else 16, OUTPUTS=tile.outputs, INPUTS=tile.inputs, NORM=norm is not None, BIAS=bias is not None,
        GATED=gated, ADDS=added_to is not None, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["rows"])
def _product(  # type: ignore[no-untyped-def]
    x_ptr, norm_ptr, weight_ptr, bias_ptr, out_ptr, rows, outputs, inputs, epsilon, scale,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr, NORM: tl.constexpr, BIAS: tl.constexpr,
    GATED: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    """Some outputs of all rows. The norm is a factor of a row, so that it is known only when all inputs have been read."""
    columns = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    inside = columns < outputs
    row = tl.arange(0, ROWS)
    WIDTH: tl.constexpr = INPUTS if ROWS == 1 else ROWS
    sums = tl.zeros([OUTPUTS, WIDTH], tl.float32)
    others = tl.zeros([OUTPUTS, WIDTH], tl.float32)
    squares = tl.zeros([ROWS, INPUTS], tl.float32)
    for first in range(0, inputs, INPUTS):
        places = first + tl.arange(0, INPUTS)
        here = places < inputs
        x = tl.load(x_ptr + row[:, None] * inputs + places[None, :], mask=(row[:, None] < rows) & here[None, :], other=0.0)
        if NORM:
            exact = x.to(tl.float32)
            squares += exact * exact
            x = (exact * tl.load(norm_ptr + places, mask=here, other=0.0).to(tl.float32)[None, :]).to(x.dtype)
        at = weight_ptr + columns[:, None] * inputs + places[None, :]
        read = inside[:, None] & here[None, :]
        weights = tl.load(at, mask=read, other=0.0)
        sums = _more(sums, weights, x, ROWS)
        if GATED:
            others = _more(others, tl.load(at + outputs * inputs, mask=read, other=0.0), x, ROWS)
    result = _whole(sums, ROWS)
    factor = 1.0
    if NORM:
        factor = tl.rsqrt(tl.sum(squares, 1) / inputs + epsilon)[None, :]
        result = result * factor
    if BIAS:
        result += tl.load(bias_ptr + columns, mask=inside, other=0.0).to(tl.float32)[:, None]
    if GATED:
        up = _whole(others, ROWS)
        if NORM:
            up = up * factor
        if BIAS:
            up += tl.load(bias_ptr + outputs + columns, mask=inside, other=0.0).to(tl.float32)[:, None]
        result = result / (1 + tl.exp(-result)) * up
    goal = out_ptr + row[None, :] * outputs + columns[:, None]
    written = inside[:, None] & (row[None, :] < rows)
    if ADDS:
        result = tl.load(goal, mask=written, other=0.0).to(tl.float32) + result * scale
    tl.store(goal, result.to(out_ptr.dtype.element_ty), mask=written)


@triton.jit
def _more(sums, weights, x, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    if ROWS == 1:  # summed up at the end alone
        more = sums + weights.to(tl.float32) * x.to(tl.float32)
    else:
        more = tl.dot(weights, tl.trans(x), sums, input_precision="ieee")
    return more


@triton.jit
def _whole(sums, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    if ROWS == 1:
        whole = tl.sum(sums, 1)[:, None]
    else:
        whole = sums
    return whole
