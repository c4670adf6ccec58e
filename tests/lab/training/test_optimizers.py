from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from midfill_lab.training.model import build_model
from midfill_lab.training.optimizers import (
    MasterWeights,
    Muon,
    TrainingProgress,
    build_optimizers,
    orthogonalize,
    peaks_of,
    rate_factor,
    restore_peaks,
    set_rates,
)
from midfill_lab.training.options import TrainingOptions
from midfill_lab.training.vocabulary import Vocabulary
from tests.lab.training.runs import OPTIONS, TINY


@pytest.mark.parametrize(
    ("share", "factor"), [(0, 0), (0.05, 0.5), (0.1, 1), (0.5, 1), (0.8, 1), (0.9, 0.5), (0.999, 0.005), (1, 0)]
)
def test_rates_warm_up_stay_and_decay(share: float, factor: float) -> None:
    assert rate_factor(share, 7, TrainingOptions(warmup=0.1, decay=0.2)) == pytest.approx(factor)


@given(st.floats(0, 1))
def test_without_warmup_and_decay_the_rate_is_constant(share: float) -> None:
    assert rate_factor(share, 0, TrainingOptions(warmup=0, decay=0)) == 1


def test_the_share_of_a_run_is_that_of_its_steps() -> None:
    progress = TrainingProgress(step=10)
    assert progress.share(TrainingOptions(max_steps=100)) == pytest.approx(0.1)
    assert progress.share(TrainingOptions(max_steps=5)) == 1


@pytest.mark.parametrize(("step", "share", "factor"), [(0, 0.4, 0.05), (9, 0.4, 0.95), (10, 0.4, 1), (50, 0.95, 0.1)])
def test_rates_warm_up_by_steps_where_the_clock_says_little_of_them(step: int, share: float, factor: float) -> None:
    options = TrainingOptions(minutes=8, warmup=0.5, warmup_steps=10, decay=0.5)
    assert rate_factor(share, step, options) == pytest.approx(factor)


def test_the_share_of_a_run_by_the_clock_is_that_of_its_minutes() -> None:
    progress = TrainingProgress(step=10, seconds=120)
    assert progress.share(TrainingOptions(max_steps=5, minutes=8)) == pytest.approx(0.25)
    assert progress.share(TrainingOptions(minutes=1)) == 1


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


def bf16_model(vocabulary: Vocabulary) -> tuple[torch.nn.Module, MasterWeights]:
    model: torch.nn.Module = build_model(TINY, vocabulary)
    masters = MasterWeights(model)
    masters.lower()
    return model, masters


def test_positions_keep_their_precision_in_bf16(vocabulary: Vocabulary) -> None:
    model, _ = bf16_model(vocabulary)
    exact: torch.nn.Module = build_model(TINY, vocabulary)
    positions = torch.arange(4096)[None]
    turned, expected = (
        each.get_submodule("model.rotary_emb")(torch.zeros(1, dtype=torch.float32), positions) for each in (model, exact)
    )
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert all(mine.equal(other) for mine, other in zip(turned, expected, strict=True))


def test_every_parameter_is_either_a_matrix_or_another(vocabulary: Vocabulary) -> None:
    model, masters = bf16_model(vocabulary)
    muon, adamw = build_optimizers(masters.named, OPTIONS)
    matrices, others = muon.param_groups[0]["params"], adamw.param_groups[0]["params"]
    assert len(matrices) == 7 * TINY.layers
    assert len(matrices) + len(others) == len(list(model.parameters()))
    assert all(master.dtype == torch.float32 for master in matrices + others)


def test_without_muon_adamw_takes_all_and_decays_the_matrices_alone(vocabulary: Vocabulary) -> None:
    _, masters = bf16_model(vocabulary)
    (adamw,) = build_optimizers(masters.named, replace(OPTIONS, muon_lr=None))
    matrices, others = adamw.param_groups
    assert len(matrices["params"]) == 7 * TINY.layers
    assert (matrices["weight_decay"], others["weight_decay"]) == (OPTIONS.weight_decay, 0.0)


def test_a_checkpoint_does_not_bring_back_the_rates_of_other_options(vocabulary: Vocabulary) -> None:
    _, masters = bf16_model(vocabulary)
    before = build_optimizers(masters.named, OPTIONS)
    after = build_optimizers(masters.named, replace(OPTIONS, lr=1e-5, muon_lr=2e-5))
    peaks = peaks_of(after)
    for optimizer, saved in zip(after, before, strict=True):
        optimizer.load_state_dict(saved.state_dict())
    restore_peaks(after, peaks)
    set_rates(after, 1.0)
    assert [optimizer.param_groups[0]["lr"] for optimizer in after] == [2e-5, 1e-5]


def test_updates_too_small_for_bf16_add_up(vocabulary: Vocabulary) -> None:
    model, masters = bf16_model(vocabulary)
    weight, master = next(model.parameters()), next(iter(masters.named.values()))
    with torch.no_grad():
        master.fill_(1.0)
        for _ in range(100):
            master.add_(1e-4)
            masters.write_back()
    torch.testing.assert_close(weight, torch.full_like(weight, 1.01))


def test_gradients_move_from_the_weights_to_the_masters_and_add_up_there(vocabulary: Vocabulary) -> None:
    model, masters = bf16_model(vocabulary)
    weight, master = next(model.parameters()), next(iter(masters.named.values()))
    for gradient in (1.0, 2.0**-10):  # their sum is no bf16 number
        weight.grad = torch.full_like(weight, gradient)
        masters.take_gradients()
        assert weight.grad is None
    assert master.grad is not None
    assert master.grad.flatten()[0].item() == 1.0 + 2.0**-10
