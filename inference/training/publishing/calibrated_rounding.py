"""Rounds a model's matrices by what they see: what one column loses, the columns after it make up for.

GPTQ (Frantar et al., arXiv 2210.17323), in GGUF's groups of 32 columns.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from inference.checkpoints.checkpoint import find_checkpoint
from inference.training.corpus.corpus import Corpus
from inference.training.corpus.vocabulary import load_vocabulary
from inference.training.errors import OptionError
from inference.training.examples.windows import Window, Windows
from inference.training.hardware import multiplies_bf16
from inference.training.optimization.grids import GROUP, LEVELS, best_grid
from inference.training.optimization.rounding import kind_of
from inference.training.options import ExampleOptions, Quantization

DAMPING = 0.01
"""Of the mean squared input, added to every column's, so that unused columns have an inverse."""


@torch.no_grad()
def calibrated_rounding(
    model: str, corpus: Path, quantization: Quantization, *, windows: int, window: int = 512
) -> dict[str, NDArray[np.uint8]]:
    """The bytes in GGUF of every matrix of the model, by its name, each [rows, bytes]; embeddings are not among them.

    The matrices see `windows` training windows of `window` tokens.

    Raises:
        BadModel: there is no such model.
        OptionError: the matrices' type has more than 5 bits.
    """
    if quantization.matrices not in LEVELS:
        raise OptionError(f"a corpus helps to round to {', '.join(LEVELS)}, not to {quantization.matrices}")
    checkpoint = find_checkpoint(model)
    vocabulary = load_vocabulary(checkpoint.folder / "tokenizer.json", checkpoint.tokenizer().format.name)
    loaded: PreTrainedModel = AutoModelForCausalLM.from_pretrained(checkpoint.folder, dtype=torch.float32)
    output = loaded.get_output_embeddings()  # type: ignore[no-untyped-call]
    made = Windows(Corpus(corpus, "train"), vocabulary, ExampleOptions(), length=window, seed=1)
    matrices = {
        name: layer
        for name, layer in loaded.named_modules()
        if isinstance(layer, nn.Linear) and layer is not output and kind_of(name, layer.weight, quantization)
    }
    with _squared_inputs(matrices) as squared:
        for index in range(windows):
            _see(loaded, made[index])
    return {
        f"{name}.weight": round_columns(layer.weight, squared[name], quantization.matrices)
        for name, layer in matrices.items()
    }


def round_columns(weights: Tensor, squared_inputs: Tensor, kind: str) -> NDArray[np.uint8]:
    """GGUF's bytes, [R, bytes], of weights [R, C] rounded to `kind`, of 4 or 5 bits.

    squared_inputs: the sum of products of every two columns' inputs, [C, C].
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


@contextmanager
def _squared_inputs(matrices: Mapping[str, nn.Linear]) -> Iterator[dict[str, Tensor]]:
    """What `round_columns` takes, of every matrix, summed over the model's forwards within the context."""
    squared = {name: torch.zeros(layer.in_features, layer.in_features) for name, layer in matrices.items()}

    def add(name: str, given: Tensor) -> None:
        rows = given.flatten(0, -2).float()
        squared[name].addmm_(rows.T, rows)

    with ExitStack() as hooks:
        for name, layer in matrices.items():
            hook = layer.register_forward_pre_hook(lambda _, given, name=name: add(name, given[0]))
            hooks.callback(hook.remove)
        yield squared


def _see(model: nn.Module, window: Window) -> None:
    is_fast = multiplies_bf16(torch.device("cpu"))
    with torch.autocast("cpu", torch.bfloat16, enabled=is_fast):
        model(input_ids=window.ids[None], position_ids=window.positions[None], use_cache=False, logits_to_keep=1)
