from __future__ import annotations

from dataclasses import replace

import torch

from midfill_lab.training.corpus.vocabulary import Vocabulary
from midfill_lab.training.optimization.optimizers import (
    MasterWeights,
    build_optimizers,
    peaks_of,
    restore_peaks,
    set_rates,
)
from midfill_lab.training.run.modeling import build_model
from tests.lab.training.runs import OPTIONS, TINY


def bf16_model(vocabulary: Vocabulary) -> tuple[torch.nn.Module, MasterWeights]:
    model: torch.nn.Module = build_model(TINY, vocabulary)
    masters = MasterWeights(model)
    return model.to(torch.bfloat16), masters


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


def test_rates_are_a_share_of_their_peaks(vocabulary: Vocabulary) -> None:
    _, masters = bf16_model(vocabulary)
    optimizers = build_optimizers(masters.named, OPTIONS)
    for factor in (0.5, 1.0):
        set_rates(optimizers, factor)
    assert [optimizer.param_groups[0]["lr"] for optimizer in optimizers] == [OPTIONS.muon_lr, OPTIONS.lr]
