"""Finds a model on disk by name, folder or hub name, and checks it before anything is loaded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.checkpoints.architecture import SUPPORTED_TYPES, ModelShape, read_architecture
from inference.checkpoints.generic_shape import read_generic_shape
from inference.checkpoints.hub import ReportProgress, cached_snapshot, fetch_snapshot, is_hub_name
from inference.checkpoints.local_models.names import path_of
from inference.checkpoints.weights import WeightsFile, find_weights, update_identity
from inference.text.fim import AUTO
from inference.text.tokenization import TextTokenizer, read_tokenizer
from protocol.errors import BadModel
from protocol.settings import BUNDLED_MODEL, TINY_MODEL

_MODELS = Path(__file__).parents[1] / "models"
BUNDLED_FOLDERS = {BUNDLED_MODEL: _MODELS / "midfill-10m", TINY_MODEL: _MODELS / "midfill-10m"}
"""The folders of the models that midfill brings along, by their names."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model folder with its parsed config; `name` is the user's name for it.

    `architecture` is an `Architecture` if our decoder runs the model; transformers' modules run any other.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    architecture: ModelShape

    def tokenizer(self, fim_format: str = AUTO) -> TextTokenizer:
        """Its tokenizer; BadModel if it cannot be used for fill-in-the-middle."""
        recorded = self.config.get("midfill", {})  # written by `midfill train`
        wanted = recorded.get("fim_format", AUTO) if fim_format == AUTO else fim_format
        suffice = recorded.get("fragments_suffice")
        return read_tokenizer(self.folder / "tokenizer.json", wanted, fragments_suffice=suffice)

    def weights(self) -> tuple[WeightsFile, ...]:
        """Its weights files, checked; BadModel if one is missing or damaged."""
        return find_weights(self.folder)


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
        return open_checkpoint(BUNDLED_FOLDERS[model], model)
    folder = path_of(model) or Path(model).expanduser()
    if folder.exists():
        return open_checkpoint(folder, model)
    if not is_hub_name(model):
        raise BadModel(
            f"no model {model!r}: it is neither {' nor '.join(BUNDLED_FOLDERS)}, nor a path, nor a name on the Hugging "
            "Face hub; `midfill models` lists the models on this machine"
        )
    snapshot = cached_snapshot(model)
    return None if snapshot is None else open_checkpoint(snapshot, model)


def open_checkpoint(folder: Path, name: str) -> Checkpoint:
    """The checkpoint in `folder`; BadModel, with the file at fault, if it is not one."""
    path = folder / "config.json"
    if not path.is_file():
        raise BadModel(f"{folder} is not a model folder: it has no config.json")
    try:
        config = json.loads(path.read_text(encoding="utf-8"), object_hook=_special_float)
    except (OSError, ValueError) as error:
        raise BadModel(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise BadModel(f"{path} is not a model's config: it holds a {type(config).__name__}, not an object")
    if not (folder / "tokenizer.json").is_file():
        raise BadModel(f"{folder} has no tokenizer.json: save the tokenizer in the format of the tokenizers library")
    read_shape = read_architecture if config.get("model_type") in SUPPORTED_TYPES else read_generic_shape
    return Checkpoint(name, folder, config, read_shape(config, str(path)))


def _special_float(value: dict[str, Any]) -> object:
    """transformers writes infinity as {"__float__": "Infinity"}."""
    return float(value["__float__"]) if value.keys() == {"__float__"} else value


def fingerprint(checkpoint: Checkpoint, dtype: str) -> str:
    """Everything that saved KV depends on, as one string: weights, tokenizer, dtype and RoPE settings."""
    digest = hashlib.sha256()
    for weights in checkpoint.weights():
        update_identity(digest, weights)
    digest.update((checkpoint.folder / "tokenizer.json").read_bytes())
    digest.update(json.dumps(checkpoint.config, sort_keys=True).encode())
    digest.update(dtype.encode())
    return digest.hexdigest()
