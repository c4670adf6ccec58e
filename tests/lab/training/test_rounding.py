from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from midfill_lab.training.rounding import GROUP, LEVELS, best_grid

KINDS = sorted(LEVELS)


def groups(count: int = 200) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(count, GROUP, generator=generator) * torch.rand(count, 1, generator=generator) + 0.05
    weights[0] = 0
    weights[1] = 0.25
    weights[2, 7] = 30  # an outlier
    return weights


@pytest.mark.parametrize("kind", KINDS)
def test_packed_codes_are_ggufs_blocks(kind: str) -> None:
    grid = best_grid(groups(), torch.ones(GROUP), kind)
    codes = grid.codes(groups())
    read = gguf.dequantize(grid.pack(codes), gguf.GGMLQuantizationType[kind.upper()])
    np.testing.assert_array_equal(read, grid.values(codes).numpy())


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_grid_loses_less_than_the_widest(kind: str) -> None:
    type_ = gguf.GGMLQuantizationType[kind.upper()]
    widest = torch.from_numpy(gguf.dequantize(gguf.quantize(groups().numpy(), type_), type_))
    grid = best_grid(groups(), torch.ones(GROUP), kind)
    lost, lost_by_widest = ((rounded - groups()).square().sum() for rounded in (grid.values(grid.codes(groups())), widest))
    assert lost < 0.97 * lost_by_widest


@pytest.mark.parametrize("kind", KINDS)
def test_what_matters_more_loses_less(kind: str) -> None:
    importance = torch.ones(GROUP)
    importance[:4] = 1000
    errors = []
    for weights in (torch.ones(GROUP), importance):
        grid = best_grid(groups(), weights, kind)
        errors.append((grid.values(grid.codes(groups())) - groups())[:, :4].square().sum())
    assert errors[1] < errors[0]
