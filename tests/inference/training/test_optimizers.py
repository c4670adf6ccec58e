from __future__ import annotations

import torch

from inference.training.modeling import build_model
from inference.training.optimizers import MasterWeights, build_optimizers, set_rates
from inference.training.vocabulary import Vocabulary
from tests.inference.training.runs import OPTIONS, TINY


def bf16_model(vocabulary: Vocabulary) -> tuple[torch.nn.Module, MasterWeights]:
    model: torch.nn.Module = build_model(TINY, vocabulary)
    masters = MasterWeights(model)
    return model.to(torch.bfloat16), masters


def test_every_parameter_is_either_a_matrix_or_another(vocabulary: Vocabulary) -> None:
    model, masters = bf16_model(vocabulary)
    matrices, others = masters.matrices(), masters.others()
    assert len(matrices) == 7 * TINY.layers
    assert len(matrices) + len(others) == len(list(model.parameters()))
    assert all(master.dtype == torch.float32 for master in matrices + others)


def test_updates_too_small_for_bf16_add_up(vocabulary: Vocabulary) -> None:
    model, masters = bf16_model(vocabulary)
    weight, master = next(model.parameters()), masters.masters[0]
    with torch.no_grad():
        master.fill_(1.0)
        for _ in range(100):
            master.add_(1e-4)
            masters.write_back()
    torch.testing.assert_close(weight, torch.full_like(weight, 1.01))


def test_gradients_move_from_the_weights_to_the_masters(vocabulary: Vocabulary) -> None:
    model, masters = bf16_model(vocabulary)
    weight = next(model.parameters())
    weight.grad = torch.ones_like(weight)
    masters.take_gradients()
    assert weight.grad is None
    assert masters.masters[0].grad is not None
    assert masters.masters[0].grad.dtype == torch.float32


def test_rates_are_a_share_of_their_peaks(vocabulary: Vocabulary) -> None:
    _, masters = bf16_model(vocabulary)
    optimizers = build_optimizers(masters, OPTIONS)
    for factor in (0.5, 1.0):
        set_rates(optimizers, factor)
    assert [optimizer.param_groups[0]["lr"] for optimizer in optimizers] == [OPTIONS.muon_lr, OPTIONS.lr]
