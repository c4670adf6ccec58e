"""Updates the weights: float32 masters of bf16 weights, Muon for matrices, AdamW for the rest; schedules the rates."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from midfill_lab.training.machine import multiplies_bf16
from midfill_lab.training.options import Quantization, Stage, TrainingOptions
from midfill_lab.training.rounding import kind_of, round_trip

# Of the quintic Newton-Schulz iteration, chosen for their slope at zero: https://kellerjordan.github.io/posts/muon/
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_EPSILON = 1e-7


@dataclass(frozen=True)
class TrainingProgress:
    """The progress of a run, over all its resumes.

    Attributes:
        seconds: wall-clock time spent in the training loop, with all that it waits for.
        windows: number of consumed windows by their length: the position in the data, whatever the stages are.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    windows: Mapping[int, int] = field(default_factory=dict)

    def share(self, options: TrainingOptions) -> float:
        """The completed share of the run, 0 to 1."""
        done = self.step / options.max_steps if options.minutes is None else self.seconds / (60 * options.minutes)
        return min(1.0, done)


def rate_factor(share: float, step: int, options: TrainingOptions) -> float:
    """Warmup-stable-decay: linear from 0, constant, linear to 0 (arXiv 2404.06395, section 4).

    share: of the run, in the middle of a step; step: how many were made before it.
    """
    warm = 1.0
    if options.warmup_steps:
        warm = (step + 0.5) / options.warmup_steps
    elif share < options.warmup:
        warm = share / options.warmup
    return min(1.0, warm, (1 - share) / options.decay if options.decay else 1.0)


def stage_at(share: float, stages: Sequence[Stage]) -> int:
    """The index of the current stage."""
    begun = 0.0
    for index, stage in enumerate(stages):
        begun += stage.share
        if share < begun:
            return index
    return len(stages) - 1


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


class Trained(Protocol):
    """The parameters that the optimizers update: a model's trainable ones, or copies of them."""

    named: dict[str, nn.Parameter]
    """The parameters by their names in the model."""

    def take_gradients(self) -> None:
        """Add the gradients of a backward pass to those of the step."""
        return

    def write_back(self) -> None:
        """Copy the parameters into the model after a step."""
        return

    def begin_rounding(self) -> None:
        """Round what is written back from now on, if there is a quantization."""
        return

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Take over the values of all parameters, as of a checkpoint."""
        for name, parameter in self.named.items():
            parameter.copy_(weights[name])
        self.write_back()

    def restore(self, model: nn.Module) -> None:  # noqa: ARG002
        """Make the parameters themselves the model's, in float32."""
        return


class OwnWeights(Trained):
    """The model's own float32 weights, which need none of this; autocast, if enabled, handles precision."""

    def __init__(self, model: nn.Module) -> None:
        self.named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


class MasterWeights(Trained):
    """Float32 copies of a model's parameters, which the optimizers update instead of the originals.

    Computing in pure bf16 is fastest, but bf16 sums would lose small updates, so these are made in the copies.
    """

    def __init__(self, model: nn.Module, quantization: Quantization | None = None) -> None:
        """Copy a float32 model's parameters; with `quantization`, they can be rounded on their way to the model.

        The gradients at the rounded weights update the masters (straight-through).
        """
        self._weights: list[Tensor] = list(model.parameters())
        self._quantization = quantization
        self._rounds = False
        self.named = {name: nn.Parameter(weight.detach().float().clone()) for name, weight in model.named_parameters()}

    @torch.no_grad()
    def lower(self) -> None:
        """Make the model's parameters bf16.

        Its buffers keep their precision: the frequencies of rotary positions, rounded to bf16, would turn queries at a
        distance of 1,000 tokens by 1.4 radians from where they are when it is served.
        """
        for weight in self._weights:
            weight.data = weight.data.to(torch.bfloat16)

    @torch.no_grad()
    def take_gradients(self) -> None:
        having = [pair for pair in zip(self._weights, self.named.values(), strict=True) if pair[0].grad is not None]
        taken: dict[nn.Parameter, Tensor] = {}
        for weight, master in having:
            assert weight.grad is not None
            taken[master], weight.grad = weight.grad.float(), None
        added = [master for master in taken if master.grad is not None]
        if added:
            torch._foreach_add_([master.grad for master in added], [taken[master] for master in added])  # type: ignore[misc]
        for master, gradient in taken.items():
            if master.grad is None:
                master.grad = gradient

    @torch.no_grad()
    def write_back(self) -> None:
        rounded = [self._rounded(name, master) for name, master in self.named.items()]
        torch._foreach_copy_(self._weights, rounded)

    def begin_rounding(self) -> None:
        if not self._rounds and self._quantization is not None:
            self._rounds = True
            self.write_back()

    @torch.no_grad()
    def restore(self, model: nn.Module) -> None:
        nn.Module.to(model, torch.float32)
        for weight, master in zip(model.parameters(), self.named.values(), strict=True):
            weight.copy_(master)

    def _rounded(self, name: str, master: Tensor) -> Tensor:
        kind = kind_of(name, master, self._quantization) if self._rounds and self._quantization else None
        return master if kind is None else round_trip(master, kind)


def build_optimizers(parameters: Mapping[str, nn.Parameter], options: TrainingOptions) -> list[Optimizer]:
    """The optimizers of all parameters, given by name; each group keeps its peak rate as `peak_lr`.

    Norms and embeddings have no weight decay: their magnitude is meaningful.
    """
    matrices = [parameter for name, parameter in parameters.items() if _is_matrix(name, parameter)]
    others = [parameter for name, parameter in parameters.items() if not _is_matrix(name, parameter)]
    optimizers: list[Optimizer] = []
    if options.muon_lr is not None:
        dtype = torch.bfloat16 if multiplies_bf16(next(iter(parameters.values())).device) else torch.float32
        optimizers.append(Muon(matrices, lr=options.muon_lr, weight_decay=options.weight_decay, dtype=dtype))
        groups = [{"params": others, "weight_decay": 0.0}]
    else:
        groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    optimizers.append(AdamW(groups, lr=options.lr, betas=(0.9, 0.95), weight_decay=options.weight_decay, fused=True))
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak_lr"] = group["lr"]
    return optimizers


def peaks_of(optimizers: Sequence[Optimizer]) -> list[list[dict[str, float]]]:
    """Peak rate and decay of every group of every optimizer, from the options."""
    names = ("peak_lr", "weight_decay")
    return [[{name: group[name] for name in names} for group in optimizer.param_groups] for optimizer in optimizers]


def restore_peaks(optimizers: Sequence[Optimizer], peaks: list[list[dict[str, float]]]) -> None:
    """Restore the result of `peaks_of`: loading a checkpoint overwrites it with the checkpoint's options."""
    for optimizer, of_optimizer in zip(optimizers, peaks, strict=True):
        for group, values in zip(optimizer.param_groups, of_optimizer, strict=True):
            group.update(values)


def set_rates(optimizers: Sequence[Optimizer], factor: float) -> None:
    """Set every group's rate to `factor` of its peak."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = factor * group["peak_lr"]


def _is_matrix(name: str, parameter: nn.Parameter) -> bool:
    # Embeddings are tables, not linear maps.
    return parameter.ndim == 2 and "embed" not in name and "lm_head" not in name
