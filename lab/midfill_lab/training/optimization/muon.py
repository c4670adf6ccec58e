"""Owns Muon: orthogonalized momentum steps, batched over all matrices of one shape."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

# Of the quintic Newton-Schulz iteration, chosen for their slope at zero: https://kellerjordan.github.io/posts/muon/
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_EPSILON = 1e-7


class Muon(Optimizer):
    """Muon with Nesterov momentum and updates scaled to AdamW's (arXiv 2502.16982, section 2.2).

    `torch.optim.Muon` updates one matrix at a time, in bf16. Small matrices do not keep two cores busy, and a CPU
    without bf16 takes fifty times as long for them; this class batches those of one shape, in a selectable dtype.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        *,
        lr: float,
        weight_decay: float,
        momentum: float = 0.95,
        dtype: torch.dtype = torch.bfloat16,
    ) -> None:
        """Update `params`, which are matrices; `dtype` is that of the orthogonalization."""
        super().__init__(list(params), {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        self._dtype = dtype

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """One step along the gradients; parameters without one stay unchanged."""
        assert closure is None
        for group in self.param_groups:
            alike: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[tuple(sorted(parameter.shape))].append(parameter)
            for parameters in alike.values():
                self._step_together(parameters, group)

    def _step_together(self, parameters: list[nn.Parameter], group: dict[str, Any]) -> None:
        # Tall matrices are transposed, so that the products have the size of the shorter side.
        tall = [parameter.shape[0] > parameter.shape[1] for parameter in parameters]
        momenta = [self._momentum(parameter, group["momentum"]) for parameter in parameters]
        stacked = torch.stack([matrix.T if lies else matrix for matrix, lies in zip(momenta, tall, strict=True)])
        rate = 0.2 * math.sqrt(max(parameters[0].shape)) * group["lr"]
        for parameter, update, lies in zip(parameters, orthogonalize(stacked.to(self._dtype)), tall, strict=True):
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(update.T if lies else update, alpha=-rate)

    def _momentum(self, parameter: nn.Parameter, momentum: float) -> Tensor:
        """Update the momentum with the gradient; returns the Nesterov gradient."""
        assert parameter.grad is not None
        state = self.state[parameter]
        buffer: Tensor = state.setdefault("momentum_buffer", torch.zeros_like(parameter))
        buffer.lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(buffer, momentum)


def orthogonalize(matrices: Tensor) -> Tensor:
    """Matrices with the same singular vectors, and singular values near one, by Newton-Schulz iteration.

    matrices: [N, R, C], R at most C -> [N, R, C]
    """
    a, b, c = _COEFFICIENTS
    matrices = matrices / matrices.norm(dim=(1, 2), keepdim=True).clamp(min=_EPSILON)
    for _ in range(_ITERATIONS):
        gram = matrices @ matrices.mT
        matrices = torch.baddbmm(matrices, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), matrices, beta=a)
    return matrices
