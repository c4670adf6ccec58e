from __future__ import annotations

import pytest
import torch
from torch import nn

from midfill_lab.training.optimization.muon import Muon, orthogonalize

SHAPES = [(8, 24), (24, 8), (8, 24), (8, 8)]


def matrices(seed: int) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def give_gradients(parameters: list[nn.Parameter], seed: int) -> None:
    for parameter, gradient in zip(parameters, matrices(seed), strict=True):
        parameter.grad = gradient.detach().clone()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_steps_are_those_of_torch_s_own_muon(dtype: torch.dtype) -> None:
    ours, theirs = matrices(0), matrices(0)
    optimizer = Muon(ours, lr=0.1, weight_decay=0.1, dtype=dtype)
    reference = torch.optim.Muon(theirs, lr=0.1, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for seed in range(1, 4):
        for parameters in (ours, theirs):
            give_gradients(parameters, seed)
        optimizer.step()
        reference.step()
    for mine, other, before in zip(ours, theirs, matrices(0), strict=True):
        assert (mine - before).abs().max() > 0.05
        # Three steps of at most 0.1 in each matrix, and theirs are rounded to bf16 five times on the way.
        torch.testing.assert_close(mine, other, rtol=0, atol=6e-3)


def test_singular_values_come_near_one() -> None:
    found = torch.linalg.svdvals(orthogonalize(torch.randn(5, 16, 40, generator=torch.Generator().manual_seed(0))))
    assert found.min() > 0.6
    assert found.max() < 1.3


def test_parameters_without_a_gradient_are_left_as_they_are() -> None:
    parameters = matrices(0)
    optimizer = Muon(parameters, lr=0.1, weight_decay=0.1)
    give_gradients(parameters, 1)
    parameters[2].grad = None
    before = [parameter.detach().clone() for parameter in parameters]
    optimizer.step()
    changed = [not torch.equal(parameter, old) for parameter, old in zip(parameters, before, strict=True)]
    assert changed == [True, True, False, True]


def test_a_saved_state_goes_on_as_if_nothing_had_happened() -> None:
    straight, resumed = matrices(0), matrices(0)
    first, second = (Muon(parameters, lr=0.1, weight_decay=0.1) for parameters in (straight, resumed))
    for seed in (1, 2):
        give_gradients(straight, seed)
        first.step()
    give_gradients(resumed, 1)
    second.step()
    third = Muon(resumed, lr=0.1, weight_decay=0.1)
    third.load_state_dict(second.state_dict())
    give_gradients(resumed, 2)
    third.step()
    for mine, other in zip(straight, resumed, strict=True):
        assert torch.equal(mine, other)
