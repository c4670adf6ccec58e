"""Checkpoints: finds a model by name, path or hub name, and opens folders in transformers' format or GGUF files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from inference.checkpoints.architecture import Architecture, ModelShape
from inference.checkpoints.generic_shape import read_shape
from inference.checkpoints.gguf.file import GGUF_SUFFIX, find_gguf, open_gguf
from inference.checkpoints.hub import ReportProgress, cached_snapshot, fetch_snapshot, is_hub_name
from inference.checkpoints.other_programs import path_of
from inference.checkpoints.tensors import check_tensors
from inference.checkpoints.weights import WeightsFile, find_weights, update_identity
from inference.text.fim import AUTO
from inference.text.tokenization import TextTokenizer, read_tokenizer
from protocol.errors import BadModel, bad_model
from protocol.settings import BUNDLED_MODEL, TINY_MODEL, local_path


@dataclass(frozen=True, slots=True)
class FolderCheckpoint:
    """Implements `Checkpoint`."""

    name: str
    path: Path
    config: Mapping[str, Any]
    architecture: ModelShape

    @property
    def folder(self) -> Path:
        return self.path

    def tokenizer(self, fim_format: str = AUTO) -> TextTokenizer:
        notes = noted(self.config)
        wanted = (notes.get("fim_format") or AUTO) if fim_format == AUTO else fim_format
        return read_tokenizer(self.path / "tokenizer.json", wanted, fragments_suffice=notes.get("fragments_suffice"))

    def weights(self) -> tuple[WeightsFile, ...]:
        if method := quantization_method(self.config):
            raise BadModel(f"{self.path}: {unread(method)}")
        files = find_weights(self.path)
        if isinstance(self.architecture, Architecture):
            check_tensors(self.architecture, files, self.path)
        return files

    def tokenizer_identity(self) -> bytes:
        return (self.path / "tokenizer.json").read_bytes()


def open_folder(folder: Path, name: str) -> FolderCheckpoint:
    """The checkpoint in `folder`; BadModel, with the file at fault, if it is not one."""
    path = folder / "config.json"
    if not path.is_file():
        raise BadModel(f"{folder} is not a model folder: it has no config.json, and no GGUF file")
    with bad_model(f"{path} cannot be read"):
        config = json.loads(path.read_text(encoding="utf-8"), object_hook=_special_float)
    if not isinstance(config, dict):
        raise BadModel(f"{path} is not a model's config: it holds a {type(config).__name__}, not an object")
    if not (folder / "tokenizer.json").is_file():
        raise BadModel(f"{folder} has no tokenizer.json: save the tokenizer in the format of the tokenizers library")
    return FolderCheckpoint(name, folder, config, read_shape(config, str(path)))


def noted(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The notes of `midfill train` about the model in its config; empty without any."""
    notes = config.get("midfill")
    return notes if isinstance(notes, Mapping) else {}


def quantization_method(config: Mapping[str, Any]) -> str:
    """The method by which the weights of a folder are quantized, such as "fp8" or "awq"; empty if they are not."""
    quantization = config.get("quantization_config")
    return (
        str(quantization.get("quant_method") or "an unknown method") if isinstance(quantization, Mapping) and quantization else ""
    )


def unread(method: str) -> str:
    """Why weights that this method has quantized cannot be used."""
    return f"its weights are quantized by {method}, which midfill does not read: choose a GGUF file"


def _special_float(value: dict[str, Any]) -> object:
    """transformers writes infinity as {"__float__": "Infinity"}."""
    return float(value["__float__"]) if value.keys() == {"__float__"} else value


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

    `model` is "bundled", "tiny", a path, a name of Ollama's ("ollama:…"), or a hub name.

    Raises BadModel, with a remedy, if there is no usable one.
    """
    found = find_local_checkpoint(model)
    return found if found is not None else open_checkpoint(fetch_snapshot(model, progress), model)


def find_local_checkpoint(model: str) -> Checkpoint | None:
    """As `find_checkpoint`, but None for a hub name that is not completely in the cache."""
    if model in BUNDLED_FOLDERS:
        if not BUNDLED_FOLDERS[model].is_dir():
            raise BadModel(f"the model {model!r} is not installed: install its wheel from `make wheels`, or choose another model")
        return open_checkpoint(BUNDLED_FOLDERS[model], model)
    path = path_of(model) or local_path(model)
    if path is not None and path.exists():
        return open_checkpoint(path, model)
    if not is_hub_name(model) or model.endswith(GGUF_SUFFIX):
        raise BadModel(
            f"no model {model!r}: it is neither {' nor '.join(BUNDLED_FOLDERS)}, nor a path, nor a name on the Hugging "
            "Face hub; `midfill models` lists the models on this machine"
        )
    snapshot = cached_snapshot(model)
    return None if snapshot is None else open_checkpoint(snapshot, model)


def find_local_gguf(model: str) -> Path | None:
    """The GGUF file on this machine that `model` names, the first of several parts; None if it names none.

    BadModel if it names several.
    """
    path = path_of(model) or local_path(model)
    if path is None and is_hub_name(model):
        path = cached_snapshot(model)
    return find_gguf(path) if path is not None and path.is_dir() else path


def open_checkpoint(path: Path, name: str) -> Checkpoint:
    """The checkpoint at `path`: a folder with a config.json, a GGUF file, or a folder with one.

    Raises BadModel, with the file at fault.
    """
    with bad_model(f"{path} cannot be read as a model"):
        if path.is_file():
            return open_gguf(path, name)
        if not (path / "config.json").is_file() and (file := find_gguf(path)) is not None:
            return open_gguf(file, name)
        return open_folder(path, name)


def fingerprint(checkpoint: Checkpoint, arithmetic: str) -> str:
    """Everything that saved KV depends on, as one string: weights, tokenizer, RoPE settings, and what computes it.

    BadModel if a file is gone.
    """
    digest = hashlib.sha256()
    with bad_model(f"{checkpoint.path} cannot be read any more"):
        for weights in checkpoint.weights():
            update_identity(digest, weights)
        digest.update(checkpoint.tokenizer_identity())
    digest.update(json.dumps(checkpoint.config, sort_keys=True).encode())
    digest.update(arithmetic.encode())
    return digest.hexdigest()
