"""Products with what stands before and behind them, exactly, in Triton's interpreter; skipped where Triton is not installed."""

from __future__ import annotations

import os
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention

ON_GPU = bool(os.environ.get("MIDFILL_TEST_GPU"))
TOLERANCE = {torch.float32: 1e-5, torch.float16: 3e-3}


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("triton")
    if not ON_GPU:
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    from proof import products

    return products


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("rows", [1, 2, 16])
@pytest.mark.parametrize("inputs", [96, 200])
def test_a_product_is_exact_with_a_norm_a_bias_a_gate_and_a_sum(
    products: ModuleType, dtype: torch.dtype, rows: int, inputs: int
) -> None:
    torch.manual_seed(rows)
    device = "cuda" if ON_GPU else "cpu"
    outputs, tile = 72, products.Tile(16, 64, 4)
    x, weight, bias, norm, before = (
        torch.randn(*size, dtype=dtype, device=device)
        for size in ((rows, inputs), (outputs, inputs), (outputs,), (inputs,), (rows, outputs))
    )
    normed = F.rms_norm(x.double(), (inputs,), norm.double(), 1e-5)
    whole = F.linear(normed, weight.double(), bias.double())
    first, second = whole.chunk(2, dim=-1)
    added = before.double() + 0.5 * F.linear(x.double(), weight.double())
    for found, expected in (
        (products.product(x, weight, tile, bias=bias, norm=norm, epsilon=1e-5), whole),
        (products.product(x, weight, tile, bias=bias, norm=norm, epsilon=1e-5, gated=True), F.silu(first) * second),
        (products.product(x, weight, tile, added_to=before.clone(), scale=0.5), added),
    ):
        assert float((found - expected).norm() / expected.norm()) < TOLERANCE[dtype]
