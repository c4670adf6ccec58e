"""Owns the update of the weights: float32 masters of bf16 weights, Muon for matrices, AdamW for the rest."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Muon, Optimizer

from inference.training.options import TrainingOptions


class MasterWeights:
    """Float32 copies of a model's parameters, which the optimizers update in the model's stead.

    Computing in pure bf16 is fastest; small updates would be lost in bf16 sums, so they are made here.
    """

    def __init__(self, model: nn.Module) -> None:
        self._weights = list(model.parameters())
        self.masters = [nn.Parameter(weight.detach().float().clone()) for weight in self._weights]
        self._names = [name for name, _ in model.named_parameters()]

    def matrices(self) -> list[nn.Parameter]:
        """The masters of the layers' matrices; embeddings are tables, not maps, and are left out."""
        return [master for name, master in self._named() if _is_matrix(name, master)]

    def others(self) -> list[nn.Parameter]:
        """The masters of embeddings and norms."""
        return [master for name, master in self._named() if not _is_matrix(name, master)]

    @torch.no_grad()
    def take_gradients(self) -> None:
        """Move the gradients from the model to the masters."""
        for weight, master in zip(self._weights, self.masters, strict=True):
            master.grad = None if weight.grad is None else weight.grad.float()
            weight.grad = None

    @torch.no_grad()
    def write_back(self) -> None:
        """Round the masters into the model's weights."""
        for weight, master in zip(self._weights, self.masters, strict=True):
            weight.copy_(master)

    def state_dict(self) -> dict[str, Any]:
        return {name: master.detach() for name, master in self._named()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, master in self._named():
            master.copy_(state[name])
        self.write_back()

    def _named(self) -> list[tuple[str, nn.Parameter]]:
        return list(zip(self._names, self.masters, strict=True))


def build_optimizers(masters: MasterWeights, options: TrainingOptions) -> list[Optimizer]:
    """The optimizers over all masters; each group keeps its peak rate as `peak_lr`."""
    optimizers: list[Optimizer] = [
        Muon(
            masters.matrices(),
            lr=options.muon_lr,
            weight_decay=options.weight_decay,
            adjust_lr_fn="match_rms_adamw",
        ),
        # Norms and embeddings are not decayed: their size is meaningful.
        AdamW(masters.others(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True),
    ]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def set_rates(optimizers: Sequence[Optimizer], factor: float) -> None:
    """Set every group's rate to `factor` of its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = factor * group["peak_lr"]


def _is_matrix(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim == 2 and "embed" not in name and "lm_head" not in name
