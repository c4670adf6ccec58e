"""Opens checkpoints in transformers' format: a folder with config.json, tokenizer.json and safetensors files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference.checkpoints.architecture import ModelShape
from inference.checkpoints.generic_shape import read_shape
from inference.checkpoints.weights import WeightsFile, find_weights
from inference.text.fim import AUTO
from inference.text.tokenization import TextTokenizer, read_tokenizer
from protocol.errors import BadModel


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
        recorded = self.config.get("midfill", {})  # written by `midfill train`
        wanted = recorded.get("fim_format", AUTO) if fim_format == AUTO else fim_format
        suffice = recorded.get("fragments_suffice")
        return read_tokenizer(self.path / "tokenizer.json", wanted, fragments_suffice=suffice)

    def weights(self) -> tuple[WeightsFile, ...]:
        return find_weights(self.path)

    def tokenizer_identity(self) -> bytes:
        return (self.path / "tokenizer.json").read_bytes()


def open_folder(folder: Path, name: str) -> FolderCheckpoint:
    """The checkpoint in `folder`; BadModel, with the file at fault, if it is not one."""
    path = folder / "config.json"
    if not path.is_file():
        raise BadModel(f"{folder} is not a model folder: it has no config.json, and no GGUF file")
    try:
        config = json.loads(path.read_text(encoding="utf-8"), object_hook=_special_float)
    except (OSError, ValueError) as error:
        raise BadModel(f"{path} cannot be read: {error}") from error
    if not isinstance(config, dict):
        raise BadModel(f"{path} is not a model's config: it holds a {type(config).__name__}, not an object")
    if not (folder / "tokenizer.json").is_file():
        raise BadModel(f"{folder} has no tokenizer.json: save the tokenizer in the format of the tokenizers library")
    return FolderCheckpoint(name, folder, config, read_shape(config, str(path)))


def quantization_method(config: Mapping[str, Any]) -> str:
    """The method by which the weights of a folder are quantized, such as "fp8" or "awq"; empty if they are not."""
    told = config.get("quantization_config")
    return str(told.get("quant_method") or "an unknown method") if isinstance(told, Mapping) and told else ""


def unread(method: str) -> str:
    """Why weights that this method has quantized cannot be used."""
    return f"its weights are quantized by {method}, which midfill does not read: choose a GGUF file"


def _special_float(value: dict[str, Any]) -> object:
    """transformers writes infinity as {"__float__": "Infinity"}."""
    return float(value["__float__"]) if value.keys() == {"__float__"} else value
