"""Averages the weights of several models, and rounds them to fewer bits by GPTQ; measures what each choice costs.

Means are of models that were trained from one another (model soups, arXiv 2203.05482). GPTQ (Frantar et al., arXiv
2210.17323) rounds a model's matrices in GGUF's groups of 32 columns. Rounding a column makes an error in the matrix's
products; GPTQ changes the columns that are not rounded yet, so that they compensate it for the inputs of calibration
windows. The layers are rounded in order: the inputs of each have passed through the rounded layers before it.
"""

import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from inference.checkpoints.checkpoint import find_checkpoint
from midfill_lab.training.corpus import Corpus
from midfill_lab.training.losses import FormatLoss, format_losses
from midfill_lab.training.machine import multiplies_bf16
from midfill_lab.training.model import Batch
from midfill_lab.training.options import BITS, ExampleOptions, OptionError, Quantization
from midfill_lab.training.publish import replace_files
from midfill_lab.training.rounding import GROUP, LEVELS, best_grid, kind_of, round_trip
from midfill_lab.training.vocabulary import Vocabulary, load_vocabulary
from midfill_lab.training.windows import Window, Windows

WEIGHTS = "model.safetensors"
_CARD = "README.md"  # one training's, which does not describe the mean
DAMPING = 0.01
"""Share of the mean of the Hessian's diagonal that is added to it, so that it has an inverse."""

Layers = Iterable[nn.Module]
FLOAT_BITS = 32
BATCH = 6


def average_models(shares: Mapping[Path, float], output: Path) -> None:
    """Write the weighted mean of model folders to `output`; the precision and the other files are those of the first.

    Raises:
        OptionError: `output` is a file, the shares do not sum to 1, a folder has no readable weights in one file, or
            other weights than the first.
    """
    if output.exists() and not output.is_dir():
        raise OptionError(f"{output} is a file: name a folder for the mean")
    if not math.isclose(sum(shares.values()), 1, abs_tol=1e-6):  # nor if one is nan
        raise OptionError(f"shares {', '.join(map(str, shares.values()))} do not sum to 1")
    first, *_ = shares
    like = _weights(first)
    mean = {name: torch.zeros_like(tensor, dtype=torch.float32) for name, tensor in like.items()}
    for folder, share in shares.items():
        weights = _weights(folder)
        other = next((name for name in like.keys() | weights.keys() if not _agree(name, like, weights)), None)
        if other is not None:
            raise OptionError(f"{other} of {folder} is not that of {first}: one of them was not trained from the other")
        for name, tensor in weights.items():
            mean[name].add_(tensor.float(), alpha=share)
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as scratch:
        folder = Path(scratch)
        for path in first.iterdir():
            if path.is_file() and path.name not in (WEIGHTS, _CARD):
                shutil.copyfile(path, folder / path.name)
        rounded = {name: tensor.to(like[name].dtype) for name, tensor in mean.items()}
        save_file(rounded, folder / WEIGHTS, metadata={"format": "pt"})
        replace_files(folder, output)


def _weights(folder: Path) -> dict[str, Tensor]:
    try:
        return load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise OptionError(f"{folder / WEIGHTS} cannot be read: {error}") from error


def _agree(name: str, first: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    return name in first and name in other and first[name].shape == other[name].shape


def _opened(model: str) -> tuple[PreTrainedModel, Vocabulary]:
    """A model, by name or folder, in float32."""
    checkpoint = find_checkpoint(model)
    vocabulary = load_vocabulary(checkpoint.folder / "tokenizer.json", checkpoint.tokenizer().format.name)
    return AutoModelForCausalLM.from_pretrained(checkpoint.folder, dtype=torch.float32), vocabulary


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
    loaded, vocabulary = _opened(model)
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


@dataclass(frozen=True)
class QuantizationLoss:
    """One choice of types; `quantization` is None for the model as it is, in float32 or bfloat16."""

    quantization: Quantization | None
    num_bytes: int
    losses: tuple[FormatLoss, ...]


@torch.no_grad()
def quantization_losses(
    model: str, corpus: Path, quantizations: Sequence[Quantization | None], *, samples: int, window: int
) -> Iterator[QuantizationLoss]:
    """Measure the model, by name or folder, under each choice, on the same examples."""
    loaded, vocabulary = _opened(model)
    originals = {name: weight.detach().clone() for name, weight in loaded.named_parameters()}
    held_out = Corpus(corpus, "held_out")
    is_fast = multiplies_bf16(torch.device("cpu"))
    for quantization in quantizations:
        for name, weight in loaded.named_parameters():
            kind = kind_of(name, weight, quantization) if quantization else None
            weight.copy_(originals[name] if kind is None else round_trip(originals[name], kind))
        with torch.autocast("cpu", torch.bfloat16, enabled=is_fast):
            losses = format_losses(loaded, held_out, vocabulary, samples=samples, window=window, batch=BATCH)
        yield QuantizationLoss(quantization, size_of(loaded, quantization), losses)


def size_of(model: nn.Module, quantization: Quantization | None) -> int:
    """Bytes of the weights in a file; without a quantization matrices count 16 bits."""
    bits = 0.0
    for name, weight in model.named_parameters():
        kind = kind_of(name, weight, quantization) if quantization else None
        bits += weight.numel() * (BITS[kind] if kind else 16 if weight.ndim == 2 else FLOAT_BITS)
    return round(bits / 8)
