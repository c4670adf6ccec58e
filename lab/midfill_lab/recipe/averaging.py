"""Averages the weights of models that were trained from one another (model soups, arXiv 2203.05482)."""

import math
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from midfill_lab.training.errors import OptionError
from midfill_lab.training.publishing.model_folder import replace_files

WEIGHTS = "model.safetensors"
_CARD = "README.md"  # one training's, which does not describe the mean


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
