"""Finds a model on disk by name, path or hub name, and checks it before anything is loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from inference.checkpoints.architecture import ModelShape
from inference.checkpoints.folder import open_folder
from inference.checkpoints.gguf.file import GGUF_SUFFIX, find_gguf, open_gguf
from inference.checkpoints.hub import ReportProgress, cached_snapshot, fetch_snapshot, is_hub_name
from inference.checkpoints.local_models.names import path_of
from inference.checkpoints.weights import WeightsFile, update_identity
from inference.text.fim import AUTO
from inference.text.tokenization import TextTokenizer
from protocol.errors import BadModel
from protocol.settings import BUNDLED_MODEL, TINY_MODEL


def _own_model(name: str, package: str) -> Path:
    """The folder of one of midfill's own models: in a clone, otherwise in the distribution of this package."""
    clone = Path(__file__).parents[1] / "models"
    installed = None if clone.is_dir() else find_spec(package)
    return (clone if installed is None or installed.origin is None else Path(installed.origin).parent) / name


BUNDLED_FOLDERS = {
    BUNDLED_MODEL: _own_model("midfill-135m", "midfill_model"),
    TINY_MODEL: _own_model("midfill-10m", "midfill_model_tiny"),
}
"""The folders of the models that midfill brings along, by their names."""


class Checkpoint(Protocol):
    """A model on disk: a folder in transformers' format, or a GGUF file."""

    @property
    def name(self) -> str:
        """The user's name for it."""

    @property
    def path(self) -> Path:
        """The folder, or the GGUF file."""

    @property
    def config(self) -> Mapping[str, Any]:
        """The parsed config.json, or what it would hold."""

    @property
    def architecture(self) -> ModelShape:
        """An `Architecture` if our decoder runs the model; transformers' modules run any other."""

    @property
    def folder(self) -> Path:
        """The folder with config.json, tokenizer.json and safetensors files; BadModel for a GGUF file."""

    def tokenizer(self, fim_format: str = AUTO) -> TextTokenizer:
        """Its tokenizer; BadModel if it cannot be used for fill-in-the-middle."""

    def weights(self) -> tuple[WeightsFile, ...]:
        """Its weights files, checked; BadModel if one is missing or damaged."""

    def tokenizer_identity(self) -> bytes:
        """Bytes that differ between tokenizers."""


def find_checkpoint(model: str, progress: ReportProgress | None = None) -> Checkpoint:
    """The checkpoint that `model` names; a hub name is downloaded if necessary.

    `model` is "bundled", "tiny", a path, a name of another program's ("ollama:…", "lmstudio:…"), or a hub name.

    Raises BadModel, with a remedy, if there is no usable one.
    """
    found = find_local_checkpoint(model)
    return found if found is not None else open_checkpoint(fetch_snapshot(model, progress), model)


def find_local_checkpoint(model: str) -> Checkpoint | None:
    """As `find_checkpoint`, but None for a hub name that is not completely in the cache."""
    if model in BUNDLED_FOLDERS:
        if not BUNDLED_FOLDERS[model].is_dir():
            raise BadModel(
                f"the model {model!r} is not installed: install its wheel from `make wheels`, or choose another model"
            )
        return open_checkpoint(BUNDLED_FOLDERS[model], model)
    path = path_of(model) or Path(model).expanduser()
    if path.exists():
        return open_checkpoint(path, model)
    if not is_hub_name(model) or path.suffix == GGUF_SUFFIX:
        raise BadModel(
            f"no model {model!r}: it is neither {' nor '.join(BUNDLED_FOLDERS)}, nor a path, nor a name on the Hugging "
            "Face hub; `midfill models` lists the models on this machine"
        )
    snapshot = cached_snapshot(model)
    return None if snapshot is None else open_checkpoint(snapshot, model)


def open_checkpoint(path: Path, name: str) -> Checkpoint:
    """The checkpoint at `path`: a folder with a config.json, a GGUF file, or a folder with one.

    Raises BadModel, with the file at fault.
    """
    if path.is_file():
        return open_gguf(path, name)
    if not (path / "config.json").is_file() and (file := find_gguf(path)) is not None:
        return open_gguf(file, name)
    return open_folder(path, name)


def fingerprint(checkpoint: Checkpoint, dtype: str) -> str:
    """Everything that saved KV depends on, as one string: weights, tokenizer, dtype and RoPE settings."""
    digest = hashlib.sha256()
    for weights in checkpoint.weights():
        update_identity(digest, weights)
    digest.update(checkpoint.tokenizer_identity())
    digest.update(json.dumps(checkpoint.config, sort_keys=True).encode())
    digest.update(dtype.encode())
    return digest.hexdigest()
