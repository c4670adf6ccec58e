"""Rounds a model's matrices by GPTQ (Frantar et al., arXiv 2210.17323), in GGUF's groups of 32 columns.

Rounding a column makes an error in the matrix's products. GPTQ changes the columns that are not rounded yet, so that
they compensate it for the inputs of calibration windows. The layers are rounded in order: the inputs of each have
passed through the rounded layers before it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from inference.checkpoints.checkpoint import find_checkpoint
from midfill_lab.training.corpus.corpus import Corpus
from midfill_lab.training.corpus.vocabulary import load_vocabulary
from midfill_lab.training.errors import OptionError
from midfill_lab.training.examples.windows import Window, Windows
from midfill_lab.training.hardware import multiplies_bf16
from midfill_lab.training.optimization.rounding import GROUP, LEVELS, best_grid, kind_of
from midfill_lab.training.options import ExampleOptions, Quantization
from midfill_lab.training.run.batches import Batch

DAMPING = 0.01
"""Share of the mean of the Hessian's diagonal that is added to it, so that it has an inverse."""

Layers = Iterable[nn.Module]


@torch.no_grad()
def calibrated_rounding(
    model: str,
    corpus: Path,
    quantization: Quantization,
    *,
    windows: int,
    window: int = 512,
    tracked: Callable[[Layers], Layers] = iter,
) -> dict[str, NDArray[np.uint8]]:
    """The bytes in GGUF of the matrices of all layers, by their names in the model, each [rows, bytes].

    Calibrates on `windows` training windows of `window` tokens. `tracked` may show the progress over the layers.

    Raises:
        BadModel: there is no such model.
        OptionError: the matrices' type has more than 5 bits.
    """
    kind = quantization.matrices
    if kind not in LEVELS:
        raise OptionError(f"a corpus calibrates {', '.join(LEVELS)}, not {kind}")
    checkpoint = find_checkpoint(model)
    vocabulary = load_vocabulary(checkpoint.folder / "tokenizer.json", checkpoint.tokenizer().format.name)
    loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(checkpoint.folder, dtype=torch.float32)
    made = Windows(Corpus(corpus, "train"), vocabulary, ExampleOptions(), length=window, seed=1)
    prefix, layers = _layers(loaded)
    rounded: dict[str, NDArray[np.uint8]] = {}
    inputs = [_input_of(layers[0], loaded, made[index]) for index in range(windows)]
    for number, layer in enumerate(tracked(layers)):
        matrices = {
            name: each
            for name, each in layer.named_modules()
            if isinstance(each, nn.Linear) and kind_of(name, each.weight, quantization)
        }
        with _squared_inputs(matrices) as squared:
            for given in inputs:
                given.through(layer)
        for name, matrix in matrices.items():
            packed = round_columns(matrix.weight, squared[name], kind)
            rounded[f"{prefix}.{number}.{name}.weight"] = packed
            matrix.weight.copy_(torch.from_numpy(gguf.dequantize(packed, gguf.GGMLQuantizationType[kind.upper()])))
        inputs = [_LayerInput(given.through(layer), given.others) for given in inputs]
    return rounded


def round_columns(weights: Tensor, squared_inputs: Tensor, kind: str) -> NDArray[np.uint8]:
    """GGUF's bytes, [R, bytes], of weights [R, C] rounded to `kind`, of 4 or 5 bits.

    squared_inputs: the Hessian: sums of the products of every two columns' inputs, [C, C].
    """
    left = weights.float().clone()
    products = squared_inputs.clone()
    products.diagonal().add_(DAMPING * products.diagonal().mean().clamp_min(1e-8))
    inverse = torch.linalg.cholesky(torch.cholesky_inverse(torch.linalg.cholesky(products)), upper=True)
    importance = inverse.diagonal().square().reciprocal()
    packed = []
    for start in range(0, left.shape[1], GROUP):
        end = start + GROUP
        group, within = left[:, start:end], inverse[start:end, start:end]
        grid = best_grid(group, importance[start:end], kind)
        codes, errors = torch.empty_like(group), torch.empty_like(group)
        for column in range(GROUP):
            here = slice(column, column + 1)
            codes[:, here] = grid.codes(group[:, here])
            errors[:, here] = (group[:, here] - grid.values(codes[:, here])) / within[column, column]
            group[:, column + 1 :] -= errors[:, here] * within[column, column + 1 :]
        left[:, end:] -= errors @ inverse[start:end, end:]
        packed.append(grid.pack(codes))
    return np.concatenate(packed, axis=1)


@dataclass(frozen=True)
class _LayerInput:
    """What a decoder layer is called with: the states of a window's tokens, [1, T, H], and the rest."""

    states: Tensor
    others: Mapping[str, Any]

    def through(self, layer: nn.Module) -> Tensor:
        """The states behind the layer."""
        with torch.autocast("cpu", torch.bfloat16, enabled=multiplies_bf16(torch.device("cpu"))):
            result = layer(self.states, **self.others)
        states: Tensor = result if isinstance(result, Tensor) else result[0]
        return states


class _Caught(Exception):
    """Ends a forward at the first layer, whose input is known then."""

    def __init__(self, given: _LayerInput) -> None:
        super().__init__()
        self.given = given


def _layers(model: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """The decoder's layers, and their name."""
    named = [(name, part) for name, part in model.named_modules() if isinstance(part, nn.ModuleList)]
    return max(named, key=lambda each: len(each[1]))


def _input_of(layer: nn.Module, model: nn.Module, window: Window) -> _LayerInput:
    """The input of the model's first layer for a window."""

    def catch(_: nn.Module, args: tuple[Tensor, ...], others: dict[str, Any]) -> None:
        raise _Caught(_LayerInput(args[0], others))

    hook = layer.register_forward_pre_hook(catch, with_kwargs=True)
    try:
        batch = Batch.of(Window._make(field[None] for field in window))
        model(input_ids=batch.ids, position_ids=batch.positions, use_cache=False)
    except _Caught as caught:
        return caught.given
    finally:
        hook.remove()
    raise AssertionError("the first layer was not called")


@contextmanager
def _squared_inputs(matrices: Mapping[str, nn.Linear]) -> Iterator[dict[str, Tensor]]:
    """What `round_columns` takes, of every matrix, summed over the forwards within the context."""
    squared = {name: torch.zeros(layer.in_features, layer.in_features) for name, layer in matrices.items()}

    def add(name: str, given: Tensor) -> None:
        rows = given.flatten(0, -2).float()
        with torch.autocast("cpu", enabled=False):
            squared[name].addmm_(rows.T, rows)

    with ExitStack() as hooks:
        for name, layer in matrices.items():
            hook = layer.register_forward_pre_hook(lambda _, given, name=name: add(name, given[0]))
            hooks.callback(hook.remove)
        yield squared
